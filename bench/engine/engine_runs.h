// One model under the engine's own forward, timed without sampling, sockets or text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/runtime/loaded_model.h"
#include "engine/runtime/plan_runtime.h"
#include "kernels/compute.h"

namespace bulkhead::bench {

class EngineRuns {
 public:
  static absl::StatusOr<std::unique_ptr<EngineRuns>> Open(const std::string& path, uint32_t threads, uint32_t streams);

  // Tokens a second of a prompt of `tokens` random ids from an empty sequence.
  absl::StatusOr<double> Prefill(uint32_t tokens);
  // Tokens a second, over all streams, of `tokens` decode steps with `streams` sequences behind prompts of 16.
  absl::StatusOr<double> Decode(uint32_t tokens, uint32_t streams);

  [[nodiscard]] const engine::Model& model() const { return loaded_->model(); }
  [[nodiscard]] const engine::GgufFile& file() const { return loaded_->file(); }
  [[nodiscard]] kernels::ComputePool& pool() { return *pool_; }
  [[nodiscard]] const char* tier() const { return compute_->kernels().name; }

  // Bytes of weights that one decode step reads, and operations of the products of one prompt token.
  [[nodiscard]] uint64_t BytesPerStep() const;
  [[nodiscard]] double OperationsPerToken() const;

 private:
  EngineRuns() = default;
  absl::Status Forward(std::span<const engine::Row> rows);

  std::shared_ptr<const engine::LoadedModel> loaded_;
  std::unique_ptr<kernels::ComputePool> pool_;
  std::unique_ptr<engine::PlanRuntime> runtime_;
  std::unique_ptr<kernels::Compute> compute_;
  std::atomic<uint64_t> progress_{0};
};

}  // namespace bulkhead::bench
