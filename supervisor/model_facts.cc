#include "supervisor/model_facts.h"

namespace bulkhead::supervisor {

std::shared_ptr<const admission::ModelFacts> FactsOf(const v1::Manifest& manifest, const std::string& model,
                                                     const admission::FileIdentity& file,
                                                     const SupervisionSettings& settings) {
  auto facts = std::make_shared<admission::ModelFacts>();
  facts->model = model;
  facts->file = file;
  facts->weight_bytes = manifest.weight_bytes();
  // The manifest speaks of f16.
  facts->kv_bytes_per_token = manifest.kv_bytes_per_token() * (settings.model.kv_type == "f32" ? 2 : 1);
  facts->recurrent_bytes_per_sequence = manifest.recurrent_bytes_per_sequence();
  facts->arena_bytes = manifest.arena_bytes();
  facts->overhead_bytes = manifest.overhead_bytes();
  facts->trained_context = manifest.trained_context();
  facts->usual_context = settings.model.context;
  facts->usual_sequences = settings.model.sequences;
  return facts;
}

}  // namespace bulkhead::supervisor
