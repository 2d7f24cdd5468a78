// What the simulation knows by itself: every process, ticket and setting, kept from the inputs it gave and the actions
// it was told to carry out, never copied from the coordinator. The checker holds the coordinator against it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "admission/coordinator.h"

namespace bulkhead::sim {

using admission::AdmitRequest;
using admission::AllocationId;
using admission::AllocationState;
using admission::TicketId;
using admission::Verdict;

struct SimModel {
  std::shared_ptr<const admission::ModelFacts> facts;
  bool pinned = false;
  Verdict block = Verdict::kAllowed;
};

struct SimAllocation {
  AllocationId id = 0;
  std::shared_ptr<const admission::ModelFacts> facts;
  admission::Shape shape;
  uint64_t estimate = 0;  // private
  uint64_t worst = 0;     // private, measured
  uint64_t resident = 0;  // private, last reading
  AllocationState state = AllocationState::kReserved;
  bool stopped = false;
  TicketId loader = 0;
  bool loader_held = true;  // the loader's ticket was neither dropped nor refused nor queued again
  std::vector<TicketId> leases;
  Duration last_used{};

  [[nodiscard]] uint64_t Charge() const { return estimate > worst ? estimate : worst; }
};

enum class Place : uint8_t { kWaiting, kBound, kGranted, kOrphaned };

struct SimTicket {
  admission::Ticket handle;
  AdmitRequest request;
  Place place = Place::kWaiting;
  AllocationId allocation = 0;
  Duration arrived{};
  Verdict announced = Verdict::kAllowed;
};

// A worker that does not exist, as the memory checks see it.
struct Want {
  admission::FileIdentity file;
  uint64_t weights = 0;
  uint64_t private_bytes = 0;
};

class Mirror {
 public:
  std::vector<SimModel> models;
  std::map<AllocationId, SimAllocation> allocations;  // FREED ones leave
  std::map<TicketId, SimTicket> tickets;
  std::map<uint64_t, AllocationId> awaited;  // confirmation tokens not answered yet
  AllocationId last_id = 0;
  admission::Policy policy;
  uint64_t generation = 1;
  std::optional<admission::LiveMemory> live;
  bool live_stale = false;
  admission::Now now;

  [[nodiscard]] uint64_t ceiling() const;
  [[nodiscard]] bool PinnedModel(const std::string& model) const;
  [[nodiscard]] Verdict BlockOf(const std::string& model) const;
  [[nodiscard]] const SimAllocation* Current(const std::string& model) const;
  // TEARDOWN, REAPED or SETTLED exists of this model.
  [[nodiscard]] bool HasPredecessor(const std::string& model) const;
  [[nodiscard]] bool Serves(const SimAllocation& allocation, const AdmitRequest& request) const;
  [[nodiscard]] uint32_t Waiting() const;
  [[nodiscard]] uint32_t WaitingFor(const std::string& model) const;
  // Waiting tickets as they have to be looked at.
  [[nodiscard]] std::vector<TicketId> Order() const;

  using Gone = std::set<AllocationId>;
  [[nodiscard]] Gone Leaving(bool with_stuck) const;
  [[nodiscard]] Gone IdleUnpinned() const;
  [[nodiscard]] uint64_t Charged(const Gone& gone, const std::vector<Want>& wants) const;
  [[nodiscard]] bool FitsLive(const Gone& gone, const std::vector<Want>& wants) const;
  [[nodiscard]] bool Fits(const Gone& gone, const std::vector<Want>& wants) const {
    return Charged(gone, wants) <= ceiling() && FitsLive(gone, wants);
  }
  // What the request's smallest worker would cost; `learned` as the coordinator's. nullopt: more than u64.
  [[nodiscard]] static std::optional<Want> Smallest(const AdmitRequest& request,
                                                    const admission::LearnedPeaks& learned);

 private:
  [[nodiscard]] uint64_t Weights(const Gone& gone, const std::vector<Want>& wants) const;
};

}  // namespace bulkhead::sim
