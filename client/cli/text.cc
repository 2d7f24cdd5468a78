#include "client/cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/status.h"

namespace bulkhead::cli {
namespace {

struct Unit {
  std::string_view name;
  uint64_t milliseconds;
};
constexpr std::array kUnits = {
    Unit{"ms", 1}, Unit{"s", 1000}, Unit{"", 1000}, Unit{"m", 60'000}, Unit{"h", 3'600'000}, Unit{"d", 86'400'000},
};

// Columns a UTF-8 text takes, counting every character as one.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

absl::StatusOr<uint64_t> ParseMilliseconds(std::string_view text) {
  uint64_t count = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view suffix(rest, static_cast<size_t>(text.data() + text.size() - rest));
  const auto* unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == suffix; });
  uint64_t milliseconds = 0;
  if (error != std::errc() || unit == kUnits.end() ||
      __builtin_mul_overflow(count, unit->milliseconds, &milliseconds)) {
    return Error(Reason::kInvalidRequest, fmt::format("\"{}\" is no duration such as 500ms, 30s, 10m or 2h", text));
  }
  return milliseconds;
}

std::string HumanBytes(uint64_t bytes) {
  constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.5 would print as "1024" of the smaller unit.
  while (value >= 1023.5 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return value < 99.95 ? fmt::format("{:.1f} {}", value, kNames[unit]) : fmt::format("{:.0f} {}", value, kNames[unit]);
}

std::string HumanMilliseconds(int64_t milliseconds) {
  if (milliseconds < 1000) return fmt::format("{} ms", milliseconds);
  const int64_t seconds = milliseconds / 1000;
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} m {} s", seconds / 60, seconds % 60);
  if (seconds < 86'400) return fmt::format("{} h {} m", seconds / 3600, seconds % 3600 / 60);
  return fmt::format("{} d {} h", seconds / 86'400, seconds % 86'400 / 3600);
}

size_t Utf8CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

size_t FirstInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8CharacterLength(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8CharacterLength(text);
    const auto c = static_cast<unsigned char>(text[0]);
    const bool control = length == 1 && (c < 0x20 || c == 0x7F) && c != '\n' && c != '\t';
    const bool c1 = length == 2 && c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    if (length == 0 || control || c1) {
      out += "\uFFFD";
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string Table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                  const std::vector<size_t>& right) {
  std::vector<size_t> widths;
  for (size_t column = 0; column < header.size(); ++column) {
    size_t width = Width(header[column]);
    for (const auto& row : rows) width = std::max(width, Width(row[column]));
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t column = 0; column < cells.size(); ++column) {
      const std::string padding(widths[column] - Width(cells[column]), ' ');
      const bool at_right = std::find(right.begin(), right.end(), column) != right.end();
      text += (column > 0 ? "  " : "") + (at_right ? padding + cells[column] : cells[column] + padding);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line(header);
  for (const auto& row : rows) line(row);
  return out;
}

}  // namespace bulkhead::cli
