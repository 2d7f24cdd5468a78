// Reads a GGUF header's keys of one architecture's prefix and checks ranges as it goes. A number outside its range is
// kModelInvalid and names the key, the value and the limits.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/gguf/gguf.h"

namespace bulkhead::engine {

class HeaderReader {
 public:
  // Views both.
  HeaderReader(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(architecture) {}

  [[nodiscard]] const GgufFile& file() const { return file_; }
  [[nodiscard]] std::string Key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }
  [[nodiscard]] bool Has(std::string_view name) const { return file_.Find(Key(name)) != nullptr; }

  [[nodiscard]] absl::StatusOr<uint32_t> Number(std::string_view name, uint32_t least, uint32_t most) const {
    ASSIGN_OR_RETURN(const uint32_t value, file_.GetU32(Key(name)));
    return InRange(name, value, least, most);
  }
  [[nodiscard]] absl::StatusOr<uint32_t> Number(std::string_view name, uint32_t least, uint32_t most,
                                                uint32_t fallback) const {
    ASSIGN_OR_RETURN(const uint32_t value, file_.GetU32(Key(name), fallback));
    return InRange(name, value, least, most);
  }
  [[nodiscard]] absl::StatusOr<float> Positive(std::string_view name, float fallback) const {
    ASSIGN_OR_RETURN(const float value, file_.GetFloat(Key(name), fallback));
    if (std::isfinite(value) && value > 0) return value;
    return Error(Reason::kModelInvalid, fmt::format("{}: {} is not a positive number", Key(name), value));
  }

  // One number for each of `count` layers: an array of that length, or one value for all of them.
  [[nodiscard]] absl::StatusOr<std::vector<uint32_t>> PerLayer(std::string_view name, uint32_t count, uint32_t most,
                                                               uint32_t fallback) const {
    const GgufValue* value = file_.Find(Key(name));
    if (value == nullptr || value->type() != GgufType::kArray) {
      ASSIGN_OR_RETURN(const uint32_t one, Number(name, 0, most, fallback));
      return std::vector<uint32_t>(count, one);
    }
    if (value->count() != count) {
      return Error(Reason::kModelInvalid,
                   fmt::format("{}: {} entries for {} layers", Key(name), value->count(), count));
    }
    std::vector<uint32_t> numbers;
    for (uint32_t i = 0; i < count; ++i) {
      const auto number = value->UnsignedAt(i);
      if (!number || *number > most) {
        return Error(Reason::kModelInvalid, fmt::format("{}: entry {} is no number of 0..{}", Key(name), i, most));
      }
      numbers.push_back(static_cast<uint32_t>(*number));
    }
    return numbers;
  }

 private:
  [[nodiscard]] absl::StatusOr<uint32_t> InRange(std::string_view name, uint32_t value, uint32_t least,
                                                 uint32_t most) const {
    if (value >= least && value <= most) return value;
    return Error(Reason::kModelInvalid, fmt::format("{}: {} is outside {}..{}", Key(name), value, least, most));
  }

  const GgufFile& file_;
  std::string_view prefix_;
};

}  // namespace bulkhead::engine
