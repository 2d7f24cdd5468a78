// The offload's answers as frames of the client protocol. Pure.
#pragma once

#include <string_view>

#include "base/status.h"
#include "bulkhead/v1/client.pb.h"
#include "supervisor/offload.h"

namespace bulkhead::daemon {

// With the reason's code and a hint: the next command to try.
void Fill(v1::ErrorEvent* out, const supervisor::OffloadError& error);
void Fill(v1::ErrorEvent* out, const absl::Status& status);

void Fill(v1::Queued* out, const supervisor::QueuedEvent& event);
void Fill(v1::Loading* out, const supervisor::LoadingEvent& event);
void Fill(v1::Started* out, const supervisor::StartedEvent& event);
void Fill(v1::Resumed* out, const supervisor::ResumedEvent& event);
void Fill(v1::Delta* out, const supervisor::DeltaEvent& event);
void Fill(v1::Done* out, const supervisor::DoneEvent& event);

void Fill(v1::ResidentModel* out, const supervisor::ResidentModel& model);
void Fill(v1::RequestInfo* out, const supervisor::RequestInfo& request);
void Fill(v1::Budget* out, const supervisor::BudgetSnapshot& budget);
void Fill(v1::LoadReply* out, const supervisor::LoadResult& result);
void Fill(v1::PreflightReply* out, const supervisor::PreflightReport& report);
void Fill(v1::TerminateReply* out, const supervisor::InferenceTerminationAck& ack);
void Fill(v1::Event* out, const supervisor::LifecycleEvent& event);

}  // namespace bulkhead::daemon
