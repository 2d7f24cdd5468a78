// The events before the first token - queued, loading, resumed - as one line of progress. No state of its own.
#pragma once

#include <string_view>

#include "client/cli/session.h"

namespace bulkhead::cli {

// With --json prints `frame` as {"event":...}; else draws it, where the session is chatty. False for other frames.
bool ShowWaiting(Session& session, const v1::ServerFrame& frame, std::string_view model);

}  // namespace bulkhead::cli
