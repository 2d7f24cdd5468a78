#include "worker/manifest.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/model/memory_estimate.h"
#include "engine/model/model.h"
#include "engine/runtime/loaded_model.h"
#include "worker/translate.h"

namespace bulkhead::worker {
namespace {

void FillSizes(const engine::ModelConfig& config, v1::Manifest* manifest) {
  manifest->set_trained_context(config.trained_context);
  manifest->set_layers(config.layers);
  manifest->set_embedding(config.embedding);
  manifest->set_heads(config.heads);
  manifest->set_kv_heads(config.kv_heads);
  manifest->set_key_length(config.head_size);
  manifest->set_value_length(config.head_size);
  manifest->set_vocabulary(config.vocabulary);
}

void FillTensors(const engine::GgufFile& file, v1::Manifest* manifest) {
  std::map<std::string, uint64_t> bytes_by_type;
  uint64_t parameters = 0;
  for (const engine::TensorInfo& tensor : file.tensors()) {
    parameters += tensor.weights();
    bytes_by_type[std::string(engine::NameOf(tensor.type))] += tensor.bytes.size();
  }
  manifest->set_parameters(parameters);
  const auto most = std::max_element(bytes_by_type.begin(), bytes_by_type.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != bytes_by_type.end()) manifest->set_quantisation(most->first);
  for (const auto& [type, bytes] : bytes_by_type) (*manifest->mutable_tensor_types())[type] = bytes;
}

}  // namespace

absl::StatusOr<v1::Manifest> MakeManifest(const engine::LoadedModel& model) {
  const engine::ModelConfig& config = model.model().config();
  engine::MemoryShape one;
  one.context = 1;
  one.sequences = 1;
  ASSIGN_OR_RETURN(const engine::MemoryEstimate estimate, engine::EstimateMemory(config, one));
  v1::Manifest manifest;
  manifest.set_architecture(config.architecture_name);
  manifest.set_name(Printable(config.name));
  manifest.set_file_bytes(model.file().file_bytes());
  manifest.set_weight_bytes(model.model().weight_bytes());
  FillSizes(config, &manifest);
  FillTensors(model.file(), &manifest);
  manifest.set_kv_bytes_per_token(engine::KvBytesPerToken(config, engine::KvType::kF16));
  manifest.set_recurrent_bytes_per_sequence(engine::BytesPerSequence(config));
  manifest.set_arena_bytes(estimate.arena_bytes);
  manifest.set_overhead_bytes(estimate.overhead_bytes);
  manifest.set_chat_template(std::string(model.chat().name()));
  manifest.set_tokenizer(std::string(model.tokenizer().kind_name()));
  return manifest;
}

std::string ManifestJson(const v1::Manifest& manifest) {
  nlohmann::ordered_json json;
  json["architecture"] = manifest.architecture();
  json["name"] = manifest.name();
  json["file_bytes"] = manifest.file_bytes();
  json["weight_bytes"] = manifest.weight_bytes();
  json["parameters"] = manifest.parameters();
  json["trained_context"] = manifest.trained_context();
  json["layers"] = manifest.layers();
  json["embedding"] = manifest.embedding();
  json["heads"] = manifest.heads();
  json["kv_heads"] = manifest.kv_heads();
  json["key_length"] = manifest.key_length();
  json["value_length"] = manifest.value_length();
  json["vocabulary"] = manifest.vocabulary();
  json["kv_bytes_per_token"] = manifest.kv_bytes_per_token();
  json["recurrent_bytes_per_sequence"] = manifest.recurrent_bytes_per_sequence();
  json["arena_bytes"] = manifest.arena_bytes();
  json["overhead_bytes"] = manifest.overhead_bytes();
  json["chat_template"] = manifest.chat_template();
  json["quantisation"] = manifest.quantisation();
  json["tokenizer"] = manifest.tokenizer();
  const std::map<std::string, uint64_t> types(manifest.tensor_types().begin(), manifest.tensor_types().end());
  json["tensor_types"] = types;
  return json.dump();
}

}  // namespace bulkhead::worker
