// Everything between Configure and READY that touches the file: parse, map, read, and the engine with its memory.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "bulkhead/v1/types.pb.h"
#include "engine/model/memory_estimate.h"
#include "engine/runtime/loaded_model.h"

namespace bulkhead::engine {
class ContinuousBatchEngine;
class EngineThread;
class GenerationSink;
}  // namespace bulkhead::engine
namespace bulkhead::kernels {
class ComputePool;
}

namespace bulkhead::worker {

struct LoadSettings {
  int model_fd = -1;
  engine::MemoryShape shape;
  std::string kernel_tier;  // empty = best
  // All outlive what is loaded.
  kernels::ComputePool* pool = nullptr;
  engine::EngineThread* engine_thread = nullptr;
  engine::GenerationSink* sink = nullptr;
};

struct Loaded {
  std::shared_ptr<const engine::LoadedModel> model;
  std::unique_ptr<engine::ContinuousBatchEngine> engine;
  v1::Manifest manifest;
};

// On the calling thread, for as long as it takes. Errors are the file's or the machine's; for want of memory it does
// not return (ExitOutOfMemory).
absl::StatusOr<Loaded> LoadModel(const LoadSettings& settings, const engine::LoadProgress& progress);

}  // namespace bulkhead::worker
