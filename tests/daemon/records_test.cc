// The log that outlives the daemon: whatever instant it is cut at, what is read is a prefix of what was written.
#include "daemon/records.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/numerics_version.h"
#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

constexpr size_t kHalf = 64 << 10;

v1::GenerateRequest Request(const std::string& prompt) {
  v1::GenerateRequest request;
  request.mutable_model()->set_name("m");
  request.set_prompt(prompt);
  request.mutable_sampling()->set_seed(7);
  return request;
}

v1::ServerFrame Delta(uint64_t index) {
  v1::ServerFrame frame;
  frame.mutable_delta()->set_index(index);
  frame.mutable_delta()->set_text("t" + std::to_string(index));
  frame.mutable_delta()->add_tokens()->set_id(static_cast<int32_t>(100 + index));
  return frame;
}

std::string Bytes(const RecordStore& store) {
  std::string bytes(4096 + 2 * kHalf, '\0');
  EXPECT_EQ(sys::Pread(store.fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return bytes;
}

RecordedState Read(const RecordStore& store) {
  auto state = ReadRecords(Bytes(store));
  EXPECT_TRUE(state.ok()) << Message(state.status());
  return state.ok() ? *std::move(state) : RecordedState{};
}

class Records : public testing::Test {
 protected:
  std::unique_ptr<RecordStore> store_ = *RecordStore::Create(kHalf);
};

TEST_F(Records, WhatWasWrittenIsReadByTheNextDaemon) {
  const uint64_t serial = store_->Begin("inf-1", 1000, {1, 2, 3, 4}, Request("Once"));
  v1::ServerFrame started;
  started.mutable_started()->set_context(512);
  store_->Append(serial, started);
  for (uint64_t i = 0; i < 5; ++i) store_->Append(serial, Delta(i));
  RecordedState state;
  auto next = RecordStore::Adopt(UniqueFd(sys::Fcntl(store_->fd(), F_DUPFD_CLOEXEC, 0)), &state);
  ASSERT_TRUE(next.ok()) << Message(next.status());
  ASSERT_EQ(state.requests.size(), 1u);
  const RecordedRequest& request = state.requests[0];
  EXPECT_EQ(request.inference_id, "inf-1");
  EXPECT_EQ(request.uid, 1000u);
  EXPECT_EQ(request.numerics, static_cast<uint32_t>(kNumericsVersion));
  EXPECT_EQ(request.file, (admission::FileIdentity{1, 2, 3, 4}));
  EXPECT_EQ(request.request.prompt(), "Once");
  EXPECT_EQ(request.started->context(), 512u);
  ASSERT_EQ(request.deltas.size(), 5u);
  EXPECT_EQ(request.deltas[4].text(), "t4");
  (*next)->Append(serial, Delta(5));
  EXPECT_EQ(Read(**next).requests[0].deltas.size(), 6u);
}

TEST_F(Records, ACutAnywhereLeavesAPrefix) {
  const uint64_t serial = store_->Begin("inf-1", 1, {}, Request("Once"));
  for (uint64_t i = 0; i < 20; ++i) store_->Append(serial, Delta(i));
  const std::string whole = Bytes(*store_);
  size_t last = 0;
  for (size_t cut = 0; cut <= store_->used(); ++cut) {
    std::string bytes = whole;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(4096 + cut),
              bytes.begin() + static_cast<std::ptrdiff_t>(4096 + store_->used()), '\xA5');
    const auto state = ReadRecords(bytes);
    ASSERT_TRUE(state.ok());
    const size_t deltas = state->requests.empty() ? 0 : state->requests[0].deltas.size();
    ASSERT_GE(deltas, last) << cut;
    last = deltas;
    for (size_t i = 0; i < deltas; ++i) ASSERT_EQ(state->requests[0].deltas[i].index(), i);
  }
  EXPECT_EQ(last, 20u);
}

TEST_F(Records, AFullLogKeepsTheLiveAndDropsTheForgotten) {
  const uint64_t kept = store_->Begin("inf-kept", 1, {}, Request("Once"));
  uint64_t index = 0;
  for (int round = 0; round < 400; ++round) {
    const uint64_t serial = store_->Begin("inf-gone", 1, {}, Request(std::string(500, 'x')));
    ASSERT_NE(serial, 0u) << round;
    store_->Append(serial, Delta(0));
    if (round % 4 == 0) store_->Append(kept, Delta(index++));
    store_->Forget(serial);
  }
  const RecordedState state = Read(*store_);
  EXPECT_GT(state.generation, 1u) << "it never filled a half";
  ASSERT_EQ(state.requests.size(), 1u);
  EXPECT_EQ(state.requests[0].inference_id, "inf-kept");
  EXPECT_EQ(state.requests[0].deltas.size(), index);
}

TEST_F(Records, WhatDoesNotFitIsForgottenWholeNotInPart) {
  EXPECT_EQ(store_->Begin("inf-big", 1, {}, Request(std::string(kHalf, 'x'))), 0u);
  const uint64_t serial = store_->Begin("inf-1", 1, {}, Request("Once"));
  v1::ServerFrame delta = Delta(0);
  delta.mutable_delta()->set_text(std::string(20 << 10, 'y'));
  for (uint64_t i = 0; i < 8; ++i) {
    delta.mutable_delta()->set_index(i);
    store_->Append(serial, delta);
  }
  EXPECT_TRUE(Read(*store_).requests.empty());
}

TEST_F(Records, AnotherFormatIsRefused) {
  std::string bytes = Bytes(*store_);
  bytes[0] = 'X';
  EXPECT_FALSE(ReadRecords(bytes).ok());
  EXPECT_FALSE(ReadRecords("short").ok());
  bytes = Bytes(*store_);
  bytes[8 + 7] = '\x7F';
  EXPECT_FALSE(ReadRecords(bytes).ok());
}

}  // namespace
}  // namespace bulkhead::daemon
