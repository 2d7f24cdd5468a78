// Hooks of bulkhead-worker-test, chosen by "--hook=NAME:VALUE" on its command line or by Configure.test_hook (several
// separated by commas):
//   sleep-at-start:MS         before the parent-death signal is set (command line only)
//   slow-load:MS              at each report of load progress
//   crash-in-load, abort-in-load, hang-in-load, allocate-in-load
//   crash-at-token:N, abort-at-token:N, hang-at-token:N, allocate-at-token:N, illegal-at-token:N
//   probe-paths:WHAT          after paths were given up, before the system call filter (see probes.h)
//   probe-load-main:WHAT, probe-load-thread:WHAT, probe-run-main:WHAT, probe-run-thread:WHAT
// "--fence-off" runs without Landlock and filters.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>

#include "worker/hooks.h"

namespace bulkhead::worker {

class TestHooks final : public Hooks {
 public:
  TestHooks();

  // True for an argument that was one of ours.
  bool TakeArgument(std::string_view argument);

  bool Configure(std::string_view hook) override;
  [[nodiscard]] bool fence_off() const override { return fence_off_; }
  void At(HookPoint point) override;
  void OnLoadProgress() override;
  void OnTokens(uint64_t total) override;

 private:
  bool Add(std::string_view hook);
  [[nodiscard]] const std::string* Find(const std::string& name) const;
  [[nodiscard]] uint64_t Number(const std::string& name) const;  // 0 where it is not set
  void Probe(const std::string& name) const;
  void DieInLoad() const;

  pid_t daemon_;
  bool fence_off_ = false;
  std::map<std::string, std::string> hooks_;
};

}  // namespace bulkhead::worker
