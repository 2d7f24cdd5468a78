// Pages that several sequences and the prefix cache own: what is found, what is copied, and that nothing gets lost.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "engine/model/model_config.h"
#include "engine/runtime/plan_runtime.h"
#include "tests/engine/runtime/sanitized.h"

namespace bulkhead::engine {
namespace {

using PageVerdict = Admission::Verdict;

constexpr uint32_t kPage = kPagePositions;

// One layer that attends, and with `hybrid` one that carries a state.
std::unique_ptr<PlanRuntime> MakePaged(MemoryShape shape, bool hybrid = false) {
  ModelConfig config;
  config.layers = 2;
  config.kinds = {hybrid ? LayerKind::kShortConv : LayerKind::kAttention, LayerKind::kAttention};
  config.embedding = 64;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_size = 16;
  config.feed_forward = 64;
  config.vocabulary = 128;
  config.rope_dimensions = 16;
  if (hybrid) {
    config.recurrent.taps = 3;
    config.recurrent.inner = 64;
  }
  shape.forward_rows = std::max(shape.sequences, 8U);
  auto runtime = PlanRuntime::Create(config, shape);
  EXPECT_TRUE(runtime.ok()) << Message(runtime.status());
  return runtime.ok() ? std::move(*runtime) : nullptr;
}

std::vector<int32_t> Count(int32_t from, uint32_t count) {
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = from + static_cast<int32_t>(i);
  return tokens;
}

const PrefixSalt kSalt{.model = "m", .adapter = "", .tenant = 1000};

// A sequence as the engine drives one, without the arithmetic: in place of K, V and state it writes a digest of all
// tokens so far, so that whoever adopts a position can tell whether it is the right one.
struct Driven {
  PlanRuntime* runtime;
  uint32_t slot = 0;
  std::vector<int32_t> tokens = {};
  uint32_t computed = 0;
  std::vector<uint64_t> digests = {};

  Driven(PlanRuntime* around, uint32_t at, std::vector<int32_t> known)
      : runtime(around), slot(at), tokens(std::move(known)) {
    Digest();
  }

  void Digest() {
    uint64_t digest = digests.empty() ? 1 : digests.back();
    for (size_t i = digests.size(); i < tokens.size(); ++i) {
      digest = (digest ^ static_cast<uint64_t>(tokens[i])) * 0x9e3779b97f4a7c15ULL;
      digests.push_back(digest ^= digest >> 29);
    }
  }

  [[nodiscard]] std::byte* At(uint32_t layer, uint32_t position) const {
    KvPool& kv = runtime->kv();
    return kv.Keys(layer, kv.Table(slot)[position / kPage]) + kv.OffsetOf(position);
  }

  // Positions [from, to) hold what belongs there.
  [[nodiscard]] bool Right(uint32_t from, uint32_t to) const {
    for (uint32_t position = from; position < to; ++position) {
      for (const uint32_t layer : {0U, runtime->states().used() ? 0U : 1U}) {
        if (std::memcmp(At(layer, position), &digests[position], sizeof(uint64_t)) != 0) return false;
      }
    }
    if (to == 0 || !runtime->states().used()) return true;
    return runtime->states().Position(slot) == to &&
           std::memcmp(runtime->states().Current(slot), &digests[to - 1], sizeof(uint64_t)) == 0;
  }

  bool Adopt() {
    const uint32_t before = computed;
    computed = runtime->Adopt(slot, tokens, computed);
    return Right(before, computed) && (computed == before || computed < tokens.size());
  }

  absl::Status Compute(uint32_t to, bool checkpoint = false) {
    RETURN_IF_ERROR(runtime->Grow(slot, to, computed));
    for (uint32_t position = computed; position < to; ++position) {
      for (const uint32_t layer : {0U, runtime->states().used() ? 0U : 1U}) {
        std::memcpy(At(layer, position), &digests[position], sizeof(uint64_t));
      }
    }
    if (runtime->states().used()) {
      std::memcpy(runtime->states().Next(slot), &digests[to - 1], sizeof(uint64_t));
      runtime->states().Commit(slot, to - computed);
    }
    computed = to;
    runtime->Publish(slot, std::span(tokens).first(computed), checkpoint);
    return absl::OkStatus();
  }

  void End() {
    runtime->PublishEnd(slot, std::span(tokens).first(computed));
    runtime->Release(slot);
  }
};

Driven Begin(PlanRuntime& runtime, std::vector<int32_t> tokens, uint32_t limit, const PrefixSalt& salt = kSalt) {
  const Admission admission =
      runtime.Admit({.limit = limit, .now = static_cast<uint32_t>(tokens.size()), .salt = &salt});
  EXPECT_EQ(admission.verdict, PageVerdict::kAdmitted);
  return {&runtime, admission.slot, std::move(tokens)};
}

TEST(PageSharing, ASecondSequenceAdoptsWholePagesAndCopiesTheLastOne) {
  const auto runtime = MakePaged({.context = 256, .sequences = 3});
  Driven first = Begin(*runtime, Count(0, 150), 256);
  ASSERT_TRUE(first.Compute(150).ok());
  first.End();
  Driven second = Begin(*runtime, Count(0, 200), 256);
  ASSERT_TRUE(second.Adopt());
  EXPECT_EQ(second.computed, 150u);
  Driven third = Begin(*runtime, Count(0, 200), 256);
  third.tokens[145] = 7;  // parts from the others within the last page
  third.digests.clear();
  third.Digest();
  ASSERT_TRUE(third.Adopt());
  EXPECT_EQ(third.computed, 145u);
  const auto& table = runtime->kv().Table(second.slot);
  const uint32_t shared = table[2];
  EXPECT_EQ(runtime->kv().Table(third.slot)[2], shared);
  ASSERT_TRUE(second.Compute(200).ok());
  ASSERT_TRUE(third.Compute(200).ok());
  EXPECT_NE(table[2], shared) << "who writes gets a copy";
  EXPECT_EQ(table[0], runtime->kv().Table(third.slot)[0]);
  EXPECT_TRUE(second.Right(0, 200));
  EXPECT_TRUE(third.Right(0, 200));
  EXPECT_TRUE(runtime->Audit().ok()) << Message(runtime->Audit());
  EXPECT_EQ(runtime->cache().hits, 2u);
  EXPECT_EQ(runtime->cache().misses, 1u);
  EXPECT_EQ(runtime->cache().saved_tokens, 150u + 145u);
}

TEST(PageSharing, OneTokenIsAlwaysLeftToCompute) {
  const auto runtime = MakePaged({.context = 256, .sequences = 2});
  Driven first = Begin(*runtime, Count(0, 128), 128);
  ASSERT_TRUE(first.Compute(128).ok());
  first.End();
  Driven again = Begin(*runtime, Count(0, 128), 128);
  ASSERT_TRUE(again.Adopt());
  EXPECT_EQ(again.computed, 127u);
  ASSERT_TRUE(again.Compute(128).ok());
  EXPECT_TRUE(again.Right(0, 128));
  EXPECT_TRUE(runtime->Audit().ok()) << Message(runtime->Audit());
}

TEST(PageSharing, NothingIsSharedUnderAnotherSalt) {
  const auto runtime = MakePaged({.context = 256, .sequences = 2});
  Driven first = Begin(*runtime, Count(0, 150), 256);
  ASSERT_TRUE(first.Compute(150).ok());
  first.End();
  for (const PrefixSalt& other : {PrefixSalt{"m", "", 1001}, PrefixSalt{"m", "a", 1000}, PrefixSalt{"n", "", 1000},
                                  PrefixSalt{"m", "", 1000 + (uint64_t{1} << 32)}}) {
    Driven second = Begin(*runtime, Count(0, 150), 256, other);
    ASSERT_TRUE(second.Adopt());
    EXPECT_EQ(second.computed, 0u);
    runtime->Release(second.slot);
  }
  const Admission none = runtime->Admit(150);
  EXPECT_EQ(runtime->Adopt(none.slot, Count(0, 150), 0), 0u) << "without a salt";
}

TEST(PageSharing, WhatIsUsedLeastRecentlyIsEvictedFirst) {
  const auto runtime = MakePaged({.context = 128, .sequences = 2, .kv_tokens = 4 * kPage});
  for (const int32_t text : {0, 1000}) {
    Driven sequence = Begin(*runtime, Count(text, 128), 128);
    ASSERT_TRUE(sequence.Compute(128).ok());
    sequence.End();
  }
  EXPECT_EQ(runtime->Pages().idle, 4u);
  Driven reader = Begin(*runtime, Count(0, 128), 128);  // so that text 0 is the newer one
  ASSERT_TRUE(reader.Adopt());
  EXPECT_EQ(reader.computed, 127u);
  runtime->Release(reader.slot);
  Driven third = Begin(*runtime, Count(2000, 64), 64);
  ASSERT_TRUE(third.Compute(64).ok());
  EXPECT_EQ(runtime->cache().evictions, 1u);
  Driven old = Begin(*runtime, Count(1000, 128), 128);
  ASSERT_TRUE(old.Adopt());
  EXPECT_EQ(old.computed, 64u) << "the page at the end of text 1000 was evicted, and nothing else";
}

TEST(PageSharing, WhatTwoComputedAtOnceIsKeptOnce) {
  const auto runtime = MakePaged({.context = 256, .sequences = 2});
  Driven first = Begin(*runtime, Count(0, 130), 256);
  Driven second = Begin(*runtime, Count(0, 130), 256);
  ASSERT_TRUE(first.Compute(130).ok());
  ASSERT_TRUE(second.Compute(130).ok());
  EXPECT_EQ(runtime->kv().Table(first.slot)[1], runtime->kv().Table(second.slot)[1]);
  EXPECT_NE(runtime->kv().Table(first.slot)[2], runtime->kv().Table(second.slot)[2]);
  EXPECT_TRUE(second.Right(0, 130));
  EXPECT_TRUE(runtime->Audit().ok()) << Message(runtime->Audit());
}

TEST(PageSharing, PagesThatAreShortAreSaidToBe) {
  const auto runtime = MakePaged({.context = 256, .sequences = 3, .kv_tokens = 4 * kPage});
  Driven first = Begin(*runtime, Count(0, 100), 256);
  Driven second = Begin(*runtime, Count(1000, 100), 256);
  EXPECT_TRUE(runtime->Reserve(first.slot, 128));
  EXPECT_FALSE(runtime->Reserve(first.slot, 129)) << "the other one holds the rest";
  EXPECT_EQ(ReasonOf(runtime->Grow(first.slot, 129)), Reason::kInternal);
  const Admission third = runtime->Admit(1);
  EXPECT_EQ(third.verdict, PageVerdict::kDeferred);
  EXPECT_EQ(third.shortage, Shortage::kPages);
  runtime->Release(second.slot);
  EXPECT_TRUE(runtime->Reserve(first.slot, 256));
}

TEST(PageSharing, AStateIsAdoptedOnlyWhereItWasKept) {
  const auto runtime = MakePaged({.context = 512, .sequences = 2, .state_snapshots = 2}, true);
  Driven first = Begin(*runtime, Count(0, 300), 512);
  ASSERT_TRUE(first.Compute(128, true).ok());
  ASSERT_TRUE(first.Compute(192).ok());
  ASSERT_TRUE(first.Compute(300).ok());
  Driven meanwhile = Begin(*runtime, Count(0, 300), 512);
  ASSERT_TRUE(meanwhile.Adopt());
  EXPECT_EQ(meanwhile.computed, 128u) << "the whole pages go on to 256, the kept states do not";
  first.End();
  runtime->Release(meanwhile.slot);
  Driven next = Begin(*runtime, Count(0, 350), 512);
  ASSERT_TRUE(next.Adopt());
  EXPECT_EQ(next.computed, 300u) << "where the first one ended";
  ASSERT_TRUE(next.Compute(350).ok());
  EXPECT_TRUE(next.Right(0, 350));
  next.End();
  EXPECT_TRUE(runtime->Audit().ok()) << Message(runtime->Audit());
}

// Texts that have long beginnings in common, as conversations have.
std::vector<int32_t> Text(std::mt19937& random) {
  const uint32_t opening = random() % 3;
  std::vector<int32_t> tokens = Count(static_cast<int32_t>(1000 * opening), 40 + 50 * opening);
  for (uint32_t turn = 0; turn < 1 + random() % 3; ++turn) {
    const auto part = Count(static_cast<int32_t>(10000 + 1000 * (random() % 3)), 1 + 30 * (random() % 3));
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  return tokens;
}

class SharingWalk {
 public:
  SharingWalk(bool hybrid, uint64_t seed)
      : runtime_(MakePaged({.context = 512, .sequences = 6, .kv_tokens = 12 * kPage, .state_snapshots = 3}, hybrid)),
        random_(static_cast<uint32_t>(seed)) {}

  void Run(uint32_t operations) {
    for (uint32_t i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      Operation();
      if (i % 32 == 0) Audit(i);
    }
    for (auto& [slot, sequence] : held_) runtime_->Release(slot);
    Audit(operations);
    EXPECT_EQ(runtime_->Pages().free + runtime_->Pages().idle, runtime_->Pages().total);
    EXPECT_EQ(runtime_->Pages().reserved, 0u);
    EXPECT_GT(runtime_->cache().hits, operations / 100) << "the walk found shared beginnings";
    EXPECT_GT(runtime_->cache().evictions, operations / 100) << "and was short of pages";
    EXPECT_GT(short_, operations / 20000) << "for those that run as well";
  }

 private:
  void Audit(uint32_t operation) {
    const absl::Status status = runtime_->Audit();
    ASSERT_TRUE(status.ok()) << "after " << operation << " operations: " << Message(status);
  }

  void Operation() {
    const uint32_t choice = random_() % 8;
    if (held_.empty() || choice == 0) return Start();
    const auto chosen = std::next(held_.begin(), random_() % held_.size());
    Driven& sequence = chosen->second;
    if (choice == 1) {
      ASSERT_TRUE(sequence.Right(0, sequence.computed));
      (random_() % 4 == 0) ? runtime_->Release(sequence.slot) : sequence.End();
      held_.erase(chosen);
    } else if (choice == 2) {
      ASSERT_TRUE(sequence.Adopt());
    } else {
      Advance(sequence);
    }
  }

  void Start() {
    std::vector<int32_t> tokens = Text(random_);
    const PrefixSalt salt{.model = "", .adapter = "", .tenant = random_() % 4 == 0 ? 1U : 0U};
    const auto known = static_cast<uint32_t>(tokens.size());
    const auto limit = known + static_cast<uint32_t>(random_() % 180);
    const Admission admission = runtime_->Admit(
        {.limit = limit, .now = random_() % 8 == 0 ? limit : known, .salt = random_() % 8 == 0 ? nullptr : &salt});
    if (admission.verdict != PageVerdict::kAdmitted) return;
    const auto [entry, added] = held_.try_emplace(admission.slot, runtime_.get(), admission.slot, std::move(tokens));
    ASSERT_TRUE(added);
    limits_[admission.slot] = limit;
    ASSERT_TRUE(entry->second.Adopt());
  }

  // A chunk of what is known, or one token more.
  void Advance(Driven& sequence) {
    if (sequence.computed == limits_[sequence.slot]) return;
    if (sequence.computed == sequence.tokens.size()) {
      sequence.tokens.push_back(static_cast<int32_t>(20000 + random_() % 2));
      sequence.Digest();
    }
    uint32_t to = std::min(static_cast<uint32_t>(sequence.tokens.size()),
                           sequence.computed + 1 + static_cast<uint32_t>(random_() % 90));
    if (random_() % 2 == 0 && to / kPage > sequence.computed / kPage) to = to / kPage * kPage;
    if (runtime_->Reserve(sequence.slot, to)) {
      const absl::Status status = sequence.Compute(to, random_() % 4 == 0);
      ASSERT_TRUE(status.ok()) << Message(status);
      return;
    }
    ++short_;
    sequence.End();
    held_.erase(sequence.slot);
  }

  std::unique_ptr<PlanRuntime> runtime_;
  std::mt19937 random_;
  std::map<uint32_t, Driven> held_;
  std::map<uint32_t, uint32_t> limits_;
  uint32_t short_ = 0;
};

TEST(PageSharing, AMillionOperationsLoseNoPage) {
  const uint32_t part = kSanitized ? 20 : 1;
  SharingWalk(false, 20261201).Run(700000 / part);
  SharingWalk(true, 7).Run(300000 / part);
}

}  // namespace
}  // namespace bulkhead::engine
