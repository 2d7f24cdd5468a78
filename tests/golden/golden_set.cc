#include "tests/golden/golden_set.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace bulkhead::engine {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> ReadFloats(const std::string& path) {
  const std::string bytes = ReadFile(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

const Value& Field(const Struct& object, const std::string& name) { return object.fields().at(name); }

template <typename T>
std::vector<T> Numbers(const Value& list) {
  std::vector<T> numbers;
  for (const Value& value : list.list_value().values()) numbers.push_back(static_cast<T>(value.number_value()));
  return numbers;
}

GoldenCase ReadCase(const Struct& object, const std::string& folder) {
  const Struct& exact = Field(object, "exact").struct_value();
  GoldenCase golden;
  golden.prompt = Field(object, "prompt").string_value();
  golden.prompt_ids = Numbers<int32_t>(Field(object, "prompt_ids"));
  golden.greedy_ids = Numbers<int32_t>(Field(exact, "greedy_ids"));
  golden.greedy_margin = Numbers<double>(Field(exact, "greedy_margin"));
  golden.logits_last = ReadFloats(folder + "/" + Field(exact, "logits_last").string_value());
  const auto after = std::find_if(exact.fields().begin(), exact.fields().end(),
                                  [](const auto& field) { return field.first.starts_with("logits_after"); });
  golden.logits_after = ReadFloats(folder + "/" + after->second.string_value());
  golden.native_rms = Field(Field(object, "native_vs_exact").struct_value(), "rms").number_value();
  return golden;
}

}  // namespace

std::vector<GoldenModel> LoadGoldenSet(const std::string& folder, const std::vector<std::string>& prefixes) {
  Struct manifest;
  const auto status = google::protobuf::util::JsonStringToMessage(ReadFile(folder + "/manifest.json"), &manifest);
  if (!status.ok()) return {};
  std::vector<GoldenModel> models;
  for (const Value& value : Field(manifest, "models").list_value().values()) {
    const Struct& object = value.struct_value();
    GoldenModel model;
    model.path = folder + "/" + Field(object, "file").string_value();
    model.name = std::filesystem::path(model.path).stem().string();
    bool wanted = false;
    for (const std::string& prefix : prefixes) wanted |= model.name.starts_with(prefix);
    if (!wanted) continue;
    for (const Value& golden : Field(object, "cases").list_value().values()) {
      model.cases.push_back(ReadCase(golden.struct_value(), folder));
    }
    models.push_back(std::move(model));
  }
  return models;
}

std::string CommittedGoldenFolder() { return BULKHEAD_SOURCE_DIR "/tests/golden/data"; }

std::string SharedGoldenFolder(const std::string& part) {
  const char* folder = std::getenv("BULKHEAD_SHARED_GOLDEN");
  return std::string(folder != nullptr ? folder : BULKHEAD_SOURCE_DIR "/../shared/golden") + "/" + part;
}

}  // namespace bulkhead::engine
