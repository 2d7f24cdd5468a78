#include "supervisor/death_log.h"

#include <utility>

#include "ipc/frame.h"
#include "ipc/message.h"

namespace bulkhead::supervisor {

DeathLog::DeathLog(uv_loop_t* loop, const std::string& directory, StateFile::Warn warn)
    : file_(loop, directory, "deaths", std::move(warn)) {
  const auto bytes = file_.Load();
  if (!bytes.has_value()) return;
  if (const absl::Status parsed = Parse(*bytes); !parsed.ok()) {
    deaths_.clear();
    last_id_ = 0;
    file_.SetAside(Message(parsed));
  }
}

uint64_t DeathLog::Add(v1::Death death) {
  death.set_death_id(++last_id_);
  deaths_.push_back(std::move(death));
  while (deaths_.size() > kMaxDeaths) deaths_.pop_front();
  file_.Save(Serialise());
  return last_id_;
}

// The file is a row of frames, one Death each.
absl::Status DeathLog::Parse(std::string_view bytes) {
  ipc::FrameReader reader(ipc::kMaxControlFrame);
  while (!bytes.empty()) {
    ASSIGN_OR_RETURN(const auto payload, reader.Next(&bytes));
    if (!payload.has_value()) break;
    v1::Death death;
    RETURN_IF_ERROR(ipc::ParseInto(death, *payload));
    last_id_ = std::max(last_id_, death.death_id());
    deaths_.push_back(std::move(death));
  }
  if (reader.mid_frame()) return Error(Reason::kInternal, "death records end inside a record");
  while (deaths_.size() > kMaxDeaths) deaths_.pop_front();
  return absl::OkStatus();
}

std::string DeathLog::Serialise() const {
  std::string bytes;
  for (const v1::Death& death : deaths_) {
    const auto frame = ipc::EncodeFrame(death);
    if (frame.ok()) bytes += *frame;
  }
  return bytes;
}

}  // namespace bulkhead::supervisor
