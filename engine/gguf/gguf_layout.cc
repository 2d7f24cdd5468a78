#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "engine/gguf/gguf_parser.h"

namespace bulkhead::engine {
namespace {

absl::StatusOr<uint64_t> SizeInFile(const TensorInfo& tensor, WeightType type) {
  const WeightTypeInfo& info = InfoOf(type);
  const std::optional<uint64_t> row = BytesOf(type, tensor.dims[0]);
  if (!row.has_value()) {
    return Error(Reason::kModelInvalid,
                 fmt::format("tensor {}: rows of {} weights are no whole blocks of {} ({})", Printable(tensor.name),
                             tensor.dims[0], info.block_weights, info.name));
  }
  const std::optional<uint64_t> size = CheckedMul<uint64_t>(*row, tensor.dims[1] * tensor.dims[2] * tensor.dims[3]);
  if (!size.has_value()) {
    return Error(Reason::kModelInvalid, fmt::format("tensor {}: its bytes exceed 64 bits", Printable(tensor.name)));
  }
  return *size;
}

// Whether tensors laid end to end in the order of their offsets, with `wide` blocks for type 42, give just those
// offsets and end with the data (which may be padded to the alignment).
bool Reproduces(std::span<const TensorInfo> tensors, std::span<const uint32_t> order, WeightType layout,
                uint64_t alignment, uint64_t data_bytes) {
  uint64_t expected = 0;
  uint64_t end = 0;
  for (const uint32_t index : order) {
    const TensorInfo& tensor = tensors[index];
    if (tensor.offset != expected) return false;
    const auto size = SizeInFile(tensor, tensor.type == WeightType::kQ2_0 ? layout : tensor.type);
    if (!size.ok()) return false;
    const std::optional<uint64_t> sum = CheckedAdd<uint64_t>(tensor.offset, *size);
    const std::optional<uint64_t> next = sum.has_value() ? CheckedAlignUp(*sum, alignment) : std::nullopt;
    if (!next.has_value()) return false;
    end = *sum;
    expected = *next;
  }
  return data_bytes == end || data_bytes == expected;
}

absl::Status SettleType42(std::span<TensorInfo> tensors, std::span<const uint32_t> order, uint64_t alignment,
                          uint64_t data_bytes) {
  const auto is_42 = [](const TensorInfo& tensor) { return tensor.type == WeightType::kQ2_0; };
  const auto first = std::find_if(tensors.begin(), tensors.end(), is_42);
  if (first == tensors.end()) return absl::OkStatus();
  const bool narrow = Reproduces(tensors, order, WeightType::kQ2_0, alignment, data_bytes);
  const bool wide = Reproduces(tensors, order, WeightType::kQ2_0Wide, alignment, data_bytes);
  if (narrow == wide) {
    return Error(Reason::kModelInvalid,
                 fmt::format("tensor {}: type 42 (Q2_0) with blocks of 64 or of 128 weights: the offsets fit {}",
                             Printable(first->name), narrow ? "both" : "neither"));
  }
  if (wide) {
    for (TensorInfo& tensor : tensors) {
      if (is_42(tensor)) tensor.type = WeightType::kQ2_0Wide;
    }
  }
  return absl::OkStatus();
}

absl::Status Place(TensorInfo& tensor, std::span<const std::byte> data, uint64_t alignment) {
  ASSIGN_OR_RETURN(const uint64_t size, SizeInFile(tensor, tensor.type));
  if (tensor.offset % alignment != 0) {
    return Error(Reason::kModelInvalid, fmt::format("tensor {}: offset {} is not a multiple of {}",
                                                    Printable(tensor.name), tensor.offset, alignment));
  }
  if (tensor.offset > data.size() || size > data.size() - tensor.offset) {
    return Error(Reason::kModelInvalid, fmt::format("tensor {}: offset {} + {} exceeds the data's {} bytes",
                                                    Printable(tensor.name), tensor.offset, size, data.size()));
  }
  tensor.bytes = data.subspan(tensor.offset, size);
  return absl::OkStatus();
}

}  // namespace

absl::Status PlaceTensors(std::span<TensorInfo> tensors, std::span<const std::byte> file, uint64_t data_offset,
                          uint64_t alignment) {
  // A file of keys alone may end before the padding.
  const std::span<const std::byte> data = data_offset <= file.size() ? file.subspan(data_offset) : file.last(0);
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return tensors[a].offset < tensors[b].offset; });
  RETURN_IF_ERROR(SettleType42(tensors, order, alignment, data.size()));
  for (TensorInfo& tensor : tensors) RETURN_IF_ERROR(Place(tensor, data, alignment));
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = tensors[order[i - 1]];
    const TensorInfo& tensor = tensors[order[i]];
    if (before.offset + before.bytes.size() > tensor.offset) {
      return Error(Reason::kModelInvalid,
                   fmt::format("tensor {}: offset {} overlaps {}, which ends at {}", Printable(tensor.name),
                               tensor.offset, Printable(before.name), before.offset + before.bytes.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace bulkhead::engine
