#include "tools/make_model/gguf_writer.h"

namespace bulkhead::tools {
namespace {

using engine::GgufType;

uint64_t AlignUp(uint64_t value) { return (value + GgufWriter::kAlignment - 1) & ~(GgufWriter::kAlignment - 1); }

}  // namespace

void AppendString(std::string& out, std::string_view text) {
  AppendRaw<uint64_t>(out, text.size());
  out.append(text);
}

void GgufWriter::BeginKey(std::string_view key, GgufType type) {
  ++key_count_;
  AppendString(keys_, key);
  AppendRaw(keys_, static_cast<uint32_t>(type));
}

void GgufWriter::BeginArray(std::string_view key, GgufType element, uint64_t count) {
  BeginKey(key, GgufType::kArray);
  AppendRaw(keys_, static_cast<uint32_t>(element));
  AppendRaw(keys_, count);
}

void GgufWriter::AddU32(std::string_view key, uint32_t value) {
  BeginKey(key, GgufType::kU32);
  AppendRaw(keys_, value);
}

void GgufWriter::AddU64(std::string_view key, uint64_t value) {
  BeginKey(key, GgufType::kU64);
  AppendRaw(keys_, value);
}

void GgufWriter::AddI32(std::string_view key, int32_t value) {
  BeginKey(key, GgufType::kI32);
  AppendRaw(keys_, value);
}

void GgufWriter::AddFloat(std::string_view key, float value) {
  BeginKey(key, GgufType::kF32);
  AppendRaw(keys_, value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  BeginKey(key, GgufType::kBool);
  AppendRaw<uint8_t>(keys_, value ? 1 : 0);
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  BeginKey(key, GgufType::kString);
  AppendString(keys_, value);
}

void GgufWriter::AddStrings(std::string_view key, std::span<const std::string> values) {
  BeginArray(key, GgufType::kString, values.size());
  for (const std::string& value : values) AppendString(keys_, value);
}

void GgufWriter::AddFloats(std::string_view key, std::span<const float> values) {
  BeginArray(key, GgufType::kF32, values.size());
  keys_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void GgufWriter::AddInts(std::string_view key, std::span<const int32_t> values) {
  BeginArray(key, GgufType::kI32, values.size());
  keys_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

void GgufWriter::AddRaw(std::string_view key, uint32_t type, std::string_view value_bytes) {
  ++key_count_;
  AppendString(keys_, key);
  AppendRaw(keys_, type);
  keys_.append(value_bytes);
}

uint64_t GgufWriter::AddTensor(std::string_view name, std::span<const uint64_t> dims, engine::WeightType type) {
  uint64_t weights = 1;
  for (const uint64_t size : dims) weights *= size;
  const uint64_t offset = AlignUp(data_bytes_);
  data_bytes_ = offset + engine::BytesOf(type, weights).value_or(0);
  AddRawTensor(name, dims, static_cast<uint32_t>(type), offset);
  return offset;
}

void GgufWriter::AddRawTensor(std::string_view name, std::span<const uint64_t> dims, uint32_t type, uint64_t offset) {
  ++tensor_count_;
  AppendString(tensors_, name);
  AppendRaw(tensors_, static_cast<uint32_t>(dims.size()));
  for (const uint64_t size : dims) AppendRaw(tensors_, size);
  AppendRaw(tensors_, type);
  AppendRaw(tensors_, offset);
}

void GgufWriter::OverrideCounts(uint64_t tensors, uint64_t keys) {
  tensor_count_ = tensors;
  key_count_ = keys;
}

std::string GgufWriter::Header() const {
  std::string header = "GGUF";
  AppendRaw(header, version_);
  AppendRaw(header, tensor_count_);
  AppendRaw(header, key_count_);
  header += keys_;
  header += tensors_;
  header.resize(AlignUp(header.size()));
  return header;
}

}  // namespace bulkhead::tools
