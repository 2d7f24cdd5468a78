#include "daemon/log.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

// "<6>" for info and so on: sd-daemon(3).
class JournalLevel final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const char digit = message.level >= spdlog::level::err    ? '3'
                       : message.level == spdlog::level::warn ? '4'
                       : message.level == spdlog::level::info ? '6'
                                                              : '7';
    for (const char c : {'<', digit, '>'}) out.push_back(c);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<JournalLevel>(); }
};

// One event stays one line, whatever ended up in its text.
void Write(spdlog::level::level_enum level, std::string_view line) {
  if (!spdlog::should_log(level)) return;
  std::string clean(line);
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  spdlog::log(level, "{}", clean);
}

}  // namespace

LogForm LogFormOfStderr() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat info = {};
  if (stream == nullptr || sys::Fstat(2, &info) < 0) return LogForm::kTerminal;
  return fmt::format("{}:{}", info.st_dev, info.st_ino) == stream ? LogForm::kJournal : LogForm::kTerminal;
}

void StartLog(LogForm form) {
  spdlog::drop("bulkheadd");
  if (form == LogForm::kTerminal) {
    const auto logger = spdlog::stderr_color_mt("bulkheadd");
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%-7l%$ %v");
    spdlog::set_default_logger(logger);
    return;
  }
  const auto logger = spdlog::stderr_logger_mt("bulkheadd");
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<JournalLevel>('*').set_pattern("%*%v");
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(logger);
}

void SetLogLevel(std::string_view level) { spdlog::set_level(spdlog::level::from_str(std::string(level))); }

void LogDebug(std::string_view line) { Write(spdlog::level::debug, line); }
void LogInfo(std::string_view line) { Write(spdlog::level::info, line); }
void LogWarning(std::string_view line) { Write(spdlog::level::warn, line); }
void LogError(std::string_view line) { Write(spdlog::level::err, line); }

}  // namespace bulkhead::daemon
