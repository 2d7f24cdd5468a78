#include "tools/make_model/write_model.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/fd.h"
#include "base/sys.h"
#include "tools/make_model/gguf_writer.h"
#include "tools/make_model/random_weights.h"
#include "tools/make_model/vocabulary_maker.h"

namespace bulkhead::tools {
namespace {

// A multiple of every block size (4, 2, 34, 18, 22, 144, 210), somewhat below a MiB.
constexpr size_t kChunkBytes = 942480;

void AddKeys(const ModelSpec& spec, GgufWriter& writer) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", spec.architecture, name); };
  writer.AddString("general.architecture", spec.architecture);
  writer.AddString("general.name", spec.name);
  writer.AddU32(key("context_length"), spec.context);
  writer.AddU32(key("embedding_length"), spec.embedding);
  writer.AddU32(key("block_count"), spec.layers);
  writer.AddU32(key("feed_forward_length"), spec.feed_forward);
  writer.AddU32(key("attention.head_count"), spec.heads);
  writer.AddU32(key("attention.head_count_kv"), spec.kv_heads);
  writer.AddU32(key("attention.key_length"), spec.head);
  writer.AddU32(key("attention.value_length"), spec.head);
  writer.AddFloat(key("attention.layer_norm_rms_epsilon"), spec.rms_epsilon);
  writer.AddFloat(key("rope.freq_base"), spec.rope_base);
  if (spec.architecture == "llama") writer.AddU32(key("rope.dimension_count"), spec.head);
  writer.AddU32(key("vocab_size"), spec.vocabulary);
  writer.AddU32("general.quantization_version", 2);
  if (spec.tokenizer == "bpe") {
    AddBpe(MakeBpe(spec.vocabulary, spec.seed), writer);
  } else {
    AddSpm(MakeSpm(spec.vocabulary, spec.seed), writer);
  }
  if (spec.chatml) AddChatMl(writer);
}

absl::Status WriteTensor(const ModelSpec& spec, const TensorSpec& tensor, std::vector<std::byte>& chunk,
                         const ByteSink& sink) {
  uint64_t weights = 1;
  for (const uint64_t size : tensor.dims) weights *= size;
  uint64_t left = engine::BytesOf(tensor.type, weights).value_or(0);
  RandomBits random(HashName(spec.seed, tensor.name));
  while (left > 0) {
    const std::span<std::byte> part(chunk.data(), std::min<uint64_t>(left, kChunkBytes));
    if (tensor.norm) {
      FillNorm(random, part);
    } else {
      FillWeights(tensor.type, tensor.dims[0], random, part);
    }
    RETURN_IF_ERROR(sink(part));
    left -= part.size();
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = sys::Write(fd, bytes.data(), bytes.size());
    if (n == -EINTR) continue;
    if (n < 0) return ErrnoError(static_cast<int>(-n), fmt::format("write {}", path));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteModel(const ModelSpec& spec, const ByteSink& sink) {
  RETURN_IF_ERROR(Validate(spec));
  GgufWriter writer;
  AddKeys(spec, writer);
  const std::vector<TensorSpec> tensors = TensorsOf(spec);
  std::vector<uint64_t> offsets;
  for (const TensorSpec& tensor : tensors) offsets.push_back(writer.AddTensor(tensor.name, tensor.dims, tensor.type));
  const std::string header = writer.Header();
  RETURN_IF_ERROR(sink(std::as_bytes(std::span(header))));
  std::vector<std::byte> chunk(kChunkBytes);
  uint64_t written = 0;
  const ByteSink counted = [&](std::span<const std::byte> bytes) {
    written += bytes.size();
    return sink(bytes);
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<std::byte> padding(offsets[i] - written);
    RETURN_IF_ERROR(counted(padding));
    RETURN_IF_ERROR(WriteTensor(spec, tensors[i], chunk, counted));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> WriteModelFile(const ModelSpec& spec, const std::string& path) {
  RETURN_IF_ERROR(Validate(spec));
  const int fd = sys::Open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return ErrnoError(-fd, fmt::format("open {}", path));
  const UniqueFd file(fd);
  uint64_t size = 0;
  RETURN_IF_ERROR(WriteModel(spec, [&](std::span<const std::byte> bytes) {
    size += bytes.size();
    return WriteAll(file.get(), bytes, path);
  }));
  return size;
}

}  // namespace bulkhead::tools
