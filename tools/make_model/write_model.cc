#include "tools/make_model/write_model.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/fd.h"
#include "base/sys.h"
#include "tools/make_model/gguf_writer.h"
#include "tools/make_model/layer_tensors.h"
#include "tools/make_model/random_weights.h"
#include "tools/make_model/vocabulary_maker.h"

namespace bulkhead::tools {
namespace {

// A multiple of every block size (4, 2, 34, 18, 22, 144, 210), somewhat below a MiB.
constexpr size_t kChunkBytes = 942480;

template <typename Key>
void AddAttentionKeys(const ModelSpec& spec, const Key& key, GgufWriter& writer) {
  writer.AddU32(key("attention.head_count"), spec.architecture == "mamba2" ? 0 : spec.heads);
  if (spec.architecture == "mamba2") return;
  if (spec.architecture == "lfm2" || spec.architecture == "granitehybrid") {
    std::vector<int32_t> heads;
    for (uint32_t i = 0; i < spec.layers; ++i) heads.push_back(Attends(spec, i) ? static_cast<int>(spec.kv_heads) : 0);
    writer.AddInts(key("attention.head_count_kv"), heads);
  } else {
    writer.AddU32(key("attention.head_count_kv"), spec.kv_heads);
  }
  writer.AddU32(key("attention.key_length"), spec.head);
  writer.AddU32(key("attention.value_length"), spec.head);
  writer.AddFloat(key("rope.freq_base"), spec.rope_base);
  if (spec.architecture == "llama") writer.AddU32(key("rope.dimension_count"), spec.head);
}

template <typename Key>
void AddRecurrentKeys(const ModelSpec& spec, const Key& key, GgufWriter& writer) {
  if (spec.architecture == "lfm2") return writer.AddU32(key("shortconv.l_cache"), spec.taps);
  writer.AddU32(key("ssm.conv_kernel"), spec.taps);
  writer.AddU32(key("ssm.inner_size"), spec.inner);
  writer.AddU32(key("ssm.state_size"), spec.state);
  writer.AddU32(key("ssm.time_step_rank"), spec.state_heads);
  writer.AddU32(key("ssm.group_count"), spec.state_groups);
  if (spec.architecture == "granitehybrid") {
    writer.AddFloat(key("embedding_scale"), 3.0F);
    writer.AddFloat(key("residual_scale"), 0.8F);
    writer.AddFloat(key("logit_scale"), 0.4F);
    writer.AddBool(key("rope.scaling.finetuned"), false);
  } else if (spec.architecture != "mamba2") {
    writer.AddU32(key("full_attention_interval"), spec.attention_every);
    writer.AddU32(key("rope.dimension_count"), spec.head / 4 * 2);
  }
  if (spec.experts == 0) return;
  writer.AddU32(key("expert_count"), spec.experts);
  writer.AddU32(key("expert_used_count"), spec.experts_used);
  writer.AddU32(key("expert_feed_forward_length"), spec.feed_forward);
  writer.AddU32(key("expert_shared_feed_forward_length"), spec.feed_forward);
}

void AddKeys(const ModelSpec& spec, GgufWriter& writer) {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", spec.architecture, name); };
  writer.AddString("general.architecture", spec.architecture);
  writer.AddString("general.name", spec.name);
  writer.AddU32(key("context_length"), spec.context);
  writer.AddU32(key("embedding_length"), spec.embedding);
  writer.AddU32(key("block_count"), spec.layers);
  writer.AddU32(key("feed_forward_length"), spec.feed_forward);
  writer.AddFloat(key("attention.layer_norm_rms_epsilon"), spec.rms_epsilon);
  AddAttentionKeys(spec, key, writer);
  if (IsRecurrent(spec)) AddRecurrentKeys(spec, key, writer);
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
    if (tensor.values == Values::kWeights) {
      FillWeights(tensor.type, tensor.dims[0], random, part);
    } else {
      FillNorm(random, tensor.values == Values::kDecay ? -1.0F : 1.0F, part);
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
