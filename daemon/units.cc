#include "daemon/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "base/checked.h"

namespace bulkhead::daemon {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr std::array<Unit, 5> kDurations = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};
constexpr std::array<Unit, 5> kSizes = {
    {{"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"B", 1}}};

// `text` as number times unit; nullopt where it is neither or overflows. `bare` is the unit of a number alone.
std::optional<uint64_t> ParseQuantity(std::string_view text, std::span<const Unit> units, std::string_view bare) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.empty()) {
    if (number == 0) return 0;
    unit = bare;
  }
  for (const Unit& candidate : units) {
    if (candidate.name == unit) return CheckedMul(number, candidate.factor);
  }
  return std::nullopt;
}

std::string FormatQuantity(uint64_t value, std::span<const Unit> units, std::string_view gap) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) return fmt::format("{}{}{}", value / unit.factor, gap, unit.name);
  }
  return "0";
}

}  // namespace

absl::StatusOr<Duration> ParseDuration(std::string_view text) {
  const auto milliseconds = ParseQuantity(text, kDurations, "");
  const auto nanoseconds = milliseconds ? CheckedMul<uint64_t>(*milliseconds, 1'000'000) : std::nullopt;
  if (!nanoseconds || *nanoseconds > INT64_MAX) {
    return Error(Reason::kInvalidRequest,
                 fmt::format("'{}' is not a duration such as \"500ms\", \"90s\", \"10m\", \"2h\", \"1d\"", text));
  }
  return Duration(static_cast<int64_t>(*nanoseconds));
}

std::string FormatDuration(Duration value) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(value).count();
  return FormatQuantity(milliseconds < 0 ? 0 : static_cast<uint64_t>(milliseconds), kDurations, "");
}

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const auto bytes = ParseQuantity(text, kSizes, "B");
  if (!bytes) {
    return Error(Reason::kInvalidRequest, fmt::format("'{}' is not a size such as \"512 MiB\" or \"12 GiB\"", text));
  }
  return *bytes;
}

std::string FormatBytes(uint64_t value) { return FormatQuantity(value, kSizes, " "); }

std::string Mebibytes(uint64_t bytes) { return fmt::format("{} MiB", bytes >> 20); }

}  // namespace bulkhead::daemon
