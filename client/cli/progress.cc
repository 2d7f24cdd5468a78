#include "client/cli/progress.h"

#include <fmt/format.h>

#include "base/reason.h"
#include "bulkhead/v1/client.pb.h"

namespace bulkhead::cli {
namespace {

std::string Line(const v1::ServerFrame& frame, std::string_view model) {
  if (frame.has_queued()) {
    return fmt::format("{}: waiting, position {}: {}", model, frame.queued().position(), frame.queued().reason());
  }
  const v1::Loading& loading = frame.loading();
  return fmt::format("{}: loading, {} {}", model, loading.phase(), ProgressBar(loading.done(), loading.total()));
}

}  // namespace

bool ShowWaiting(Session& session, const v1::ServerFrame& frame, std::string_view model) {
  if (frame.has_resumed()) {
    const v1::Resumed& resumed = frame.resumed();
    if (session.json()) {
      session.PrintJson(resumed, "resumed");
    } else if (session.chatty()) {
      session.Note(fmt::format("the worker died ({}); going on in a new one, attempt {}",
                               NameOf(static_cast<Reason>(resumed.reason())), resumed.attempt()));
    }
    return true;
  }
  if (!frame.has_queued() && !frame.has_loading()) return false;
  if (session.json()) {
    if (frame.has_queued()) session.PrintJson(frame.queued(), "queued");
    if (frame.has_loading()) session.PrintJson(frame.loading(), "loading");
  } else {
    session.Progress(Line(frame, model));
  }
  return true;
}

}  // namespace bulkhead::cli
