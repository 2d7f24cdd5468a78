#include "worker/model_load.h"

#include <utility>

#include "engine/model/private_memory.h"
#include "engine/runtime/continuous_batch_engine.h"
#include "worker/manifest.h"
#include "worker/out_of_memory.h"

namespace bulkhead::worker {
namespace {

absl::StatusOr<Loaded> Load(const LoadSettings& settings, const engine::LoadProgress& progress) {
  Loaded loaded;
  ASSIGN_OR_RETURN(loaded.model, engine::LoadedModel::Load(settings.model_fd, progress));
  ASSIGN_OR_RETURN(loaded.manifest, MakeManifest(*loaded.model));
  engine::ContinuousBatchEngine::Options options;
  options.model = loaded.model;
  options.shape = settings.shape;
  options.pool = settings.pool;
  options.kernel_tier = settings.kernel_tier;
  options.thread = settings.engine_thread;
  options.sink = settings.sink;
  ASSIGN_OR_RETURN(loaded.engine, engine::ContinuousBatchEngine::Create(std::move(options)));
  return loaded;
}

}  // namespace

absl::StatusOr<Loaded> LoadModel(const LoadSettings& settings, const engine::LoadProgress& progress) {
  auto loaded = Load(settings, progress);
  if (ReasonOf(loaded.status()) != Reason::kWorkerOom) return loaded;
  const auto shortage = engine::ShortageOf(loaded.status()).value_or(engine::MemoryShortage{});
  ExitOutOfMemory({shortage.wanted_bytes, PrivateBytesInUse(), MemoryLimit()});
}

}  // namespace bulkhead::worker
