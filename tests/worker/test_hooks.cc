#include "tests/worker/test_hooks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/worker/probes.h"

namespace bulkhead::worker {
namespace {

constexpr std::array<std::string_view, 16> kNames = {
    "sleep-at-start",  "slow-load",         "crash-in-load",    "abort-in-load",
    "hang-in-load",    "allocate-in-load",  "crash-at-token",   "abort-at-token",
    "hang-at-token",   "allocate-at-token", "illegal-at-token", "probe-paths",
    "probe-load-main", "probe-load-thread", "probe-run-main",   "probe-run-thread"};

void Sleep(uint64_t milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

[[noreturn]] void Hang() {
  while (true) Sleep(1000);
}

// Writes through a null pointer the compiler cannot see through.
[[noreturn]] void Crash() {
  volatile uintptr_t nowhere = 0;
  *reinterpret_cast<volatile int*>(nowhere) = 1;
  std::abort();
}

// An instruction that no processor of this kind has, and none ever will.
[[noreturn]] void ExecuteIllegal() {
#if defined(__x86_64__)
  asm volatile("ud2");
#elif defined(__aarch64__)
  asm volatile("udf #0");
#endif
  std::abort();
}

// Touched and kept until the memory fence says no.
[[noreturn]] void AllocateForEver() {
  constexpr size_t kPiece = size_t{8} << 20;
  std::vector<char*> pieces;
  while (true) {
    pieces.push_back(new char[kPiece]);
    std::memset(pieces.back(), 1, kPiece);
  }
}

}  // namespace

TestHooks::TestHooks() : daemon_(getppid()) {}

bool TestHooks::TakeArgument(std::string_view argument) {
  constexpr std::string_view kHook = "--hook=";
  if (argument == "--fence-off") {
    fence_off_ = true;
    return true;
  }
  return argument.starts_with(kHook) && Configure(argument.substr(kHook.size()));
}

bool TestHooks::Configure(std::string_view hook) {
  while (!hook.empty()) {
    const size_t comma = std::min(hook.find(','), hook.size());
    if (!Add(hook.substr(0, comma))) return false;
    hook.remove_prefix(std::min(comma + 1, hook.size()));
  }
  Probe("probe-paths");
  return true;
}

bool TestHooks::Add(std::string_view hook) {
  const size_t colon = std::min(hook.find(':'), hook.size());
  const std::string_view name = hook.substr(0, colon);
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) return false;
  hooks_[std::string(name)] = std::string(hook.substr(std::min(colon + 1, hook.size())));
  return true;
}

const std::string* TestHooks::Find(const std::string& name) const {
  const auto found = hooks_.find(name);
  return found == hooks_.end() ? nullptr : &found->second;
}

uint64_t TestHooks::Number(const std::string& name) const {
  const std::string* text = Find(name);
  uint64_t number = 0;
  if (text != nullptr) std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

void TestHooks::Probe(const std::string& name) const {
  if (const std::string* what = Find(name); what != nullptr) RunProbe(*what, daemon_);
}

void TestHooks::At(HookPoint point) {
  switch (point) {
    case HookPoint::kSpawned:
      return Sleep(Number("sleep-at-start"));
    case HookPoint::kLoadFilterMain:
      return Probe("probe-load-main");
    case HookPoint::kLoadFilterThread:
      Probe("probe-load-thread");
      return DieInLoad();
    case HookPoint::kRunFilterMain:
      return Probe("probe-run-main");
    case HookPoint::kRunFilterThread:
      return Probe("probe-run-thread");
  }
}

void TestHooks::DieInLoad() const {
  if (Find("crash-in-load") != nullptr) Crash();
  if (Find("abort-in-load") != nullptr) std::abort();
  if (Find("hang-in-load") != nullptr) Hang();
  if (Find("allocate-in-load") != nullptr) AllocateForEver();
}

void TestHooks::OnLoadProgress() { Sleep(Number("slow-load")); }

void TestHooks::OnTokens(uint64_t total) {
  const auto reached = [&](const char* name) { return Find(name) != nullptr && total >= Number(name); };
  if (reached("crash-at-token")) Crash();
  if (reached("abort-at-token")) std::abort();
  if (reached("hang-at-token")) Hang();
  if (reached("allocate-at-token")) AllocateForEver();
  if (reached("illegal-at-token")) ExecuteIllegal();
}

}  // namespace bulkhead::worker
