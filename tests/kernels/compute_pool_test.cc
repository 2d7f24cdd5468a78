// The compute pool: every chunk once, no thread burning time when there is nothing to do.
#include "kernels/compute_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace bulkhead::kernels {
namespace {

std::unique_ptr<ComputePool> MakePool(uint32_t threads, size_t scratch_bytes = 0) {
  auto pool = ComputePool::Create({.threads = threads, .scratch_bytes = scratch_bytes});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return std::move(pool).value();
}

double ProcessSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(ComputePoolTest, RunsEveryChunkExactlyOnce) {
  for (uint32_t threads : {1, 2, 3, 8}) {
    auto pool = MakePool(threads);
    for (uint32_t chunks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(chunks);
      pool->Run(chunks, [&](uint32_t chunk, const ComputePool::Worker&) { ++seen[chunk]; });
      for (auto& count : seen) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ComputePoolTest, ResultsOfARunAreVisibleToTheNext) {
  auto pool = MakePool(4);
  std::vector<uint64_t> values(64, 0);
  for (int round = 0; round < 5000; ++round) {
    pool->Run(64, [&](uint32_t chunk, const ComputePool::Worker&) { values[chunk] += values[chunk] + round % 2; });
    for (uint64_t& value : values) value %= 1000003;
  }
  for (uint64_t value : values) EXPECT_EQ(value, values[0]);
}

TEST(ComputePoolTest, WakesHelpersThatHaveGoneToSleep) {
  auto pool = MakePool(2);
  for (int round = 0; round < 20; ++round) {
    // Long enough that the helper sleeps in most rounds; the test is right either way.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> entered = 0;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    // Each chunk waits until the other runs, so this ends early only if two threads take part.
    pool->Run(2, [&](uint32_t, const ComputePool::Worker&) {
      ++entered;
      while (entered < 2 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    });
    ASSERT_EQ(entered, 2);
    ASSERT_LT(std::chrono::steady_clock::now(), give_up);
  }
}

TEST(ComputePoolTest, OnlyActiveThreadsTakePart) {
  auto pool = MakePool(4);
  for (uint32_t active : {4u, 1u, 2u, 3u, 0u, 99u}) {
    pool->SetActiveThreads(active);
    const uint32_t expected = std::min(std::max(active, 1u), 4u);
    EXPECT_EQ(pool->active_threads(), expected);
    for (int round = 0; round < 200; ++round) {
      std::atomic<bool> outsider = false;
      pool->Run(64, [&](uint32_t, const ComputePool::Worker& worker) {
        if (worker.index >= expected) outsider = true;
      });
      ASSERT_FALSE(outsider) << active;
    }
  }
}

TEST(ComputePoolTest, GivesEachThreadItsOwnAlignedScratch) {
  auto pool = MakePool(3, 1000);
  std::atomic<bool> fits = true;
  std::vector<std::atomic<std::byte*>> scratch(3);
  for (int round = 0; round < 50; ++round) {
    pool->Run(30, [&](uint32_t, const ComputePool::Worker& worker) {
      if (worker.scratch.size() < 1000 || reinterpret_cast<uintptr_t>(worker.scratch.data()) % 64 != 0) fits = false;
      scratch[worker.index] = worker.scratch.data();
    });
  }
  EXPECT_TRUE(fits);
  std::set<std::byte*> distinct;
  for (auto& pointer : scratch) {
    EXPECT_TRUE(pointer == nullptr || distinct.insert(pointer).second);
  }
}

TEST(ComputePoolTest, ScratchGrowsForEveryThread) {
  auto pool = MakePool(2);
  ASSERT_TRUE(pool->ReserveScratch(100000).ok());
  std::atomic<int> small = 0;
  pool->Run(50, [&](uint32_t, const ComputePool::Worker& worker) { small += worker.scratch.size() < 100000; });
  EXPECT_EQ(small, 0);
}

TEST(ComputePoolTest, AnIdlePoolUsesNoCpu) {
  auto pool = MakePool(4);
  pool->Run(100, [](uint32_t, const ComputePool::Worker&) {});
  // The helpers' spins end within microseconds of CPU; what follows must cost nothing.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = ProcessSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(ProcessSeconds() - before, 0.03);
}

TEST(ComputePoolTest, HelpersHaveSmallStacks) {
  auto pool = MakePool(2);
  std::atomic<size_t> helper_stack = 0;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (helper_stack == 0 && std::chrono::steady_clock::now() < give_up) {
    pool->Run(64, [&](uint32_t, const ComputePool::Worker& worker) {
      if (worker.index == 0) return;
      pthread_attr_t attributes;
      pthread_getattr_np(pthread_self(), &attributes);
      size_t size = 0;
      pthread_attr_getstacksize(&attributes, &size);
      pthread_attr_destroy(&attributes);
      helper_stack = size;
    });
  }
  EXPECT_GE(helper_stack, 512u * 1024);
  EXPECT_LT(helper_stack, 1024u * 1024);  // a sanitizer's own share included; the default would be 8 MiB
}

TEST(ComputePoolTest, EndsWhileItsHelpersSleepOrSpin) {
  for (int round = 0; round < 100; ++round) {
    auto pool = MakePool(3);
    if (round % 2 == 0) pool->Run(8, [](uint32_t, const ComputePool::Worker&) {});
  }
}

}  // namespace
}  // namespace bulkhead::kernels
