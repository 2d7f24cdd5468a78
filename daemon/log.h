// The daemon's log: one line an event, on stderr. On a terminal with time and colour; under systemd with "<N>" in
// front, so that the journal keeps the level. Never any prompt, output, stop string or passed file's name: callers pass
// ids. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace bulkhead::daemon {

enum class LogForm { kTerminal, kJournal };

// kJournal where JOURNAL_STREAM names the very stream that stderr is.
LogForm LogFormOfStderr();

void StartLog(LogForm form);
// One of debug, info, warning, error, off.
void SetLogLevel(std::string_view level);

void LogDebug(std::string_view line);
void LogInfo(std::string_view line);
void LogWarning(std::string_view line);
void LogError(std::string_view line);

}  // namespace bulkhead::daemon
