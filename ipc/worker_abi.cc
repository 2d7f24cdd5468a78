#include "ipc/worker_abi.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace bulkhead::ipc {
namespace {

constexpr std::string_view kPrefix = "bulkhead-worker: out of memory: wanted=";
constexpr std::string_view kInUse = " in_use=";
constexpr std::string_view kLimit = " limit=";

// Appends what fits.
class Writer {
 public:
  explicit Writer(std::span<char> buffer) : buffer_(buffer) {}

  void Add(std::string_view text) {
    const size_t size = std::min(text.size(), buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, text.data(), size);
    used_ += size;
  }
  void Add(uint64_t number) {
    char digits[20];
    const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
    Add(std::string_view(digits, static_cast<size_t>(end - digits)));
  }
  [[nodiscard]] std::string_view text() const { return {buffer_.data(), used_}; }

 private:
  std::span<char> buffer_;
  size_t used_ = 0;
};

bool TakeNumber(std::string_view* text, std::string_view before, uint64_t* number) {
  if (text->substr(0, before.size()) != before) return false;
  text->remove_prefix(before.size());
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

}  // namespace

std::string_view FormatOutOfMemory(const OutOfMemoryReport& report, std::span<char> buffer) {
  Writer writer(buffer);
  writer.Add(kPrefix);
  writer.Add(report.wanted_bytes);
  writer.Add(kInUse);
  writer.Add(report.in_use_bytes);
  writer.Add(kLimit);
  writer.Add(report.limit_bytes);
  writer.Add("\n");
  return writer.text();
}

std::optional<OutOfMemoryReport> ParseOutOfMemory(std::string_view stderr_tail) {
  const size_t at = stderr_tail.rfind(kPrefix);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = stderr_tail.substr(at);
  OutOfMemoryReport report;
  const bool whole = TakeNumber(&rest, kPrefix, &report.wanted_bytes) &&
                     TakeNumber(&rest, kInUse, &report.in_use_bytes) && TakeNumber(&rest, kLimit, &report.limit_bytes);
  if (!whole) return std::nullopt;
  return report;
}

}  // namespace bulkhead::ipc
