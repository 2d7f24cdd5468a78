#include "engine/runtime/plan_runtime.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "base/sys.h"
#include "engine/model/model_config.h"
#include "engine/model/private_memory.h"

namespace bulkhead::engine {
namespace {

using Verdict = Admission::Verdict;

ModelConfig SmallConfig() {
  ModelConfig config;
  config.layers = 2;
  config.kinds.assign(2, LayerKind::kAttention);
  config.embedding = 64;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 16;
  config.feed_forward = 64;
  config.vocabulary = 128;
  config.rope_dimensions = 16;
  return config;
}

std::unique_ptr<PlanRuntime> Make(const MemoryShape& shape) {
  auto runtime = PlanRuntime::Create(SmallConfig(), shape);
  EXPECT_TRUE(runtime.ok()) << Message(runtime.status());
  return runtime.ok() ? std::move(*runtime) : nullptr;
}

TEST(PlanRuntime, SaysWhatIsShort) {
  const auto runtime = Make({.context = 256, .sequences = 2, .kv_tokens = 320});
  EXPECT_EQ(runtime->Admit(257).verdict, Verdict::kNeverFits);
  const Admission first = runtime->Admit(256);
  EXPECT_EQ(first.verdict, Verdict::kAdmitted);
  const Admission second = runtime->Admit(128);
  EXPECT_EQ(second.verdict, Verdict::kDeferred);
  EXPECT_EQ(second.shortage, Shortage::kPages);
  EXPECT_EQ(runtime->Admit(64).verdict, Verdict::kAdmitted);
  const Admission third = runtime->Admit(1);
  EXPECT_EQ(third.verdict, Verdict::kDeferred);
  EXPECT_EQ(third.shortage, Shortage::kSequences);
}

TEST(PlanRuntime, RefusesImpossibleShapes) {
  for (const MemoryShape& shape :
       {MemoryShape{.context = 0, .sequences = 1}, MemoryShape{.context = 64, .sequences = 0},
        MemoryShape{.context = 64, .sequences = 1000}, MemoryShape{.context = UINT32_MAX, .sequences = 1}}) {
    EXPECT_EQ(ReasonOf(PlanRuntime::Create(SmallConfig(), shape).status()), Reason::kInvalidRequest);
  }
}

TEST(PlanRuntime, MapsWhatTheEstimateSays) {
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    const MemoryShape shape{.context = 100, .sequences = 3, .kv_type = type};
    const auto estimate = EstimateMemory(SmallConfig(), shape);
    ASSERT_TRUE(estimate.ok());
    const uint64_t before = PrivateMemory::InUse();
    const auto runtime = Make(shape);
    const uint64_t mapped = estimate->kv_bytes + estimate->sequence_bytes + estimate->arena_bytes;
    EXPECT_EQ(runtime->private_bytes(), mapped);
    EXPECT_EQ(PrivateMemory::InUse() - before, mapped);
    EXPECT_EQ(estimate->kv_bytes, 3 * 128 * KvBytesPerToken(SmallConfig(), type)) << "whole pages";
  }
}

TEST(PlanRuntime, AShortageNamesWantedInUseAndLimit) {
  sys::SetFaultHook([](const char* call) { return std::strcmp(call, "Mmap") == 0 ? ENOMEM : 0; });
  const auto runtime = PlanRuntime::Create(SmallConfig(), {.context = 256, .sequences = 2});
  sys::SetFaultHook(nullptr);
  EXPECT_EQ(ReasonOf(runtime.status()), Reason::kWorkerOom);
  const auto shortage = ShortageOf(runtime.status());
  ASSERT_TRUE(shortage.has_value());
  EXPECT_EQ(shortage->wanted_bytes, 2 * 256 * KvBytesPerToken(SmallConfig(), KvType::kF16));
}

TEST(PlanRuntime, GrowsOnlyWithinWhatWasAdmitted) {
  const auto runtime = Make({.context = 256, .sequences = 1});
  const uint32_t slot = runtime->Admit(65).slot;
  EXPECT_TRUE(runtime->Grow(slot, 128).ok());
  EXPECT_EQ(ReasonOf(runtime->Grow(slot, 129)), Reason::kInternal);
}

// What a sequence of the random walk was promised and has been given.
struct Held {
  uint32_t admitted = 0;
  uint32_t grown = 0;
};

void ExpectBooksBalance(PlanRuntime& runtime, const std::map<uint32_t, Held>& held) {
  const auto pages = [](uint32_t tokens) { return (tokens + kPagePositions - 1) / kPagePositions; };
  uint64_t taken = 0;
  uint64_t reserved = 0;
  std::set<uint32_t> seen;
  for (const auto& [slot, sequence] : held) {
    ASSERT_EQ(runtime.kv().Table(slot).size(), pages(sequence.grown));
    for (const uint32_t page : runtime.kv().Table(slot)) {
      ASSERT_LT(page, runtime.kv().pages());
      ASSERT_TRUE(seen.insert(page).second) << "page " << page << " belongs to two sequences";
    }
    taken += pages(sequence.grown);
    reserved += pages(sequence.admitted) - pages(sequence.grown);
  }
  const PageCounts counts = runtime.Pages();
  ASSERT_EQ(counts.total - counts.free, taken);
  ASSERT_EQ(counts.reserved, reserved);
  ASSERT_LE(counts.reserved, counts.free);
}

TEST(PlanRuntime, PagesAreNeitherLostNorSharedInARandomWalk) {
  const auto runtime = Make({.context = 1024, .sequences = 8, .kv_tokens = 3000});
  std::mt19937 random(20261130);
  std::map<uint32_t, Held> held;
  for (int step = 0; step < 20000; ++step) {
    const uint32_t choice = random() % 4;
    if (choice == 0 || held.empty()) {
      const uint32_t tokens = 1 + random() % 1024;
      const Admission admission = runtime->Admit(tokens);
      if (admission.verdict == Verdict::kAdmitted) {
        ASSERT_FALSE(held.contains(admission.slot));
        held[admission.slot] = {tokens, 0};
      }
    } else {
      const auto chosen = std::next(held.begin(), random() % held.size());
      if (choice == 1) {
        runtime->Release(chosen->first);
        held.erase(chosen);
      } else {
        Held& sequence = chosen->second;
        sequence.grown = std::min(sequence.admitted, sequence.grown + 1 + static_cast<uint32_t>(random() % 200));
        ASSERT_TRUE(runtime->Grow(chosen->first, sequence.grown).ok());
      }
    }
    ExpectBooksBalance(*runtime, held);
  }
  for (const auto& [slot, sequence] : held) runtime->Release(slot);
  EXPECT_EQ(runtime->Pages().free, runtime->Pages().total);
  EXPECT_EQ(runtime->Pages().reserved, 0u);
}

}  // namespace
}  // namespace bulkhead::engine
