// One seeded run: random inputs to a real AdmissionCoordinator, every action carried out on the mirror, every invariant
// checked after every event. Single-threaded; the same seed and number of events give the same run, byte for byte.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "admission/coordinator.h"
#include "tests/sim/lifecycle_model.h"
#include "tests/sim/mirror.h"
#include "tests/sim/rng.h"

namespace bulkhead::sim {

struct Histogram {
  std::map<std::string, uint64_t> events;
  std::array<uint64_t, admission::kVerdictCount> verdicts{};
  std::array<std::array<uint64_t, kInputCount>, admission::kAllocationStateCount> cells{};
  std::map<std::string, uint64_t> actions;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed);
  // Does one event and checks everything.
  void Step(uint64_t number);
  [[nodiscard]] const Histogram& histogram() const { return histogram_; }
  // Of every action and verdict so far; equal for equal runs.
  [[nodiscard]] uint64_t digest() const { return digest_; }
  void set_trace(bool trace) { trace_ = trace; }

 private:
  // events.cc: each makes one random input.
  void AskForModel();
  void FinishSomebody();
  void CancelSomebody();
  void Progress();
  void OutOfOrder();
  void Measure();
  void Crash();
  void ReleaseModel();
  void ReleaseIdle();
  void AwaitSomebody();
  void PassTime();
  void JumpClock();
  void ChangePolicy();
  void ChangeLiveMemory();
  void TogglePin();
  void ToggleBlock();
  void ReplaceFile();

  [[nodiscard]] AllocationId PickAllocation();
  [[nodiscard]] AdmitRequest RandomRequest();
  [[nodiscard]] uint64_t RandomReading(const SimAllocation& allocation);
  [[nodiscard]] admission::LiveMemory Sample();
  void EndLeaseOf(TicketId id);
  void DropTicket(TicketId id);
  void Fail(AllocationId id, bool out_of_memory);
  bool Give(Input input, AllocationId id, uint64_t bytes = 0);
  [[nodiscard]] bool Call(Input input, AllocationId id, uint64_t bytes);
  void Follow(Input input, AllocationId id, AllocationState to, uint64_t bytes);
  void Freed(AllocationId id);

  // actions.cc: carries out what the coordinator asked for, and checks that it may ask it.
  void Drain();
  void On(const admission::SpawnAction& action);
  void On(const admission::BoundAction& action);
  void On(const admission::GrantAction& action);
  void On(const admission::QueuedAction& action);
  void On(const admission::RefuseAction& action);
  void On(const admission::EvictAction& action);
  void On(const admission::ConfirmAction& action);
  void On(const admission::UnconfirmedAction& action);
  void On(const admission::SampleMemoryAction& action);
  void CheckRefusal(const AdmitRequest& request, Reason reason, bool at_once);
  void CheckPromises(TicketId spawned_for);

  // checks.cc: what must hold between events.
  void CheckAll();
  void CheckLedger();
  void CheckCeiling();
  void CheckWaiters();
  void CheckFirstForMemory(const SimTicket& ticket);
  void CheckConfirmations();

  void Mix(uint64_t value);

  Rng rng_;
  admission::AdmissionCoordinator coordinator_;
  Mirror mirror_;  // after the coordinator: its tickets end first
  Histogram histogram_;
  uint64_t digest_ = 0;
  uint64_t next_token_ = 1;
  uint64_t next_inode_ = 100;
  uint64_t others_bytes_ = uint64_t{3} << 30;  // what other programs hold
  uint64_t charged_before_ = 0;
  uint64_t growth_ = 0;  // of charges by measurement, in this event
  bool trace_ = false;
};

}  // namespace bulkhead::sim
