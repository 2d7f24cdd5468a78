#include "engine/runtime/plan_runtime.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

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

TEST(PlanRuntime, ASnapshotSaysWhatIsHeld) {
  const auto runtime = Make({.context = 256, .sequences = 2});
  const uint32_t slot = runtime->Admit(200).slot;
  ASSERT_TRUE(runtime->Grow(slot, 70).ok());
  const auto snapshot = runtime->Snapshot();
  ASSERT_TRUE(snapshot.ok()) << Message(snapshot.status());
  EXPECT_EQ(snapshot->sequences, 1u);
  EXPECT_EQ(snapshot->max_sequences, 2u);
  EXPECT_EQ(snapshot->pages.total, 8u);
  EXPECT_EQ(snapshot->pages.free, 6u);
  EXPECT_EQ(snapshot->pages.reserved, 2u);
  EXPECT_EQ(snapshot->pages.idle, 0u);
}

// A page that somebody took behind the books.
TEST(PlanRuntime, AnAuditFindsAPageTooMany) {
  const auto runtime = Make({.context = 256, .sequences = 2});
  const uint32_t slot = runtime->Admit(200).slot;
  ASSERT_TRUE(runtime->Grow(slot, 70).ok());
  EXPECT_TRUE(runtime->Audit().ok()) << Message(runtime->Audit());
  runtime->kv().Table(slot).push_back(runtime->kv().Table(slot)[0]);
  EXPECT_EQ(ReasonOf(runtime->Audit()), Reason::kInternal);
}

}  // namespace
}  // namespace bulkhead::engine
