// Between the frames of worker.proto and the engine's plain values, one to one. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bulkhead/v1/worker.pb.h"
#include "engine/chat/chat.h"
#include "engine/model/memory_estimate.h"
#include "engine/runtime/continuous_batch_engine.h"
#include "engine/runtime/generation.h"

namespace bulkhead::worker {

// Everything but the prompt's ids. kInvalidRequest for a field out of its type's range.
absl::StatusOr<engine::GenerationRequest> ToRequest(const v1::WorkerGenerate& generate);
std::vector<engine::ChatMessage> ToMessages(const v1::WorkerMessages& messages);
absl::StatusOr<engine::MemoryShape> ToShape(const v1::Configure& configure);

void Fill(const engine::SequenceOutput& output, v1::SequenceStep* step);
void Fill(const engine::EngineSnapshot& snapshot, v1::EngineSnapshot* message);
v1::Reason ToReason(Reason reason);

// What came from a file or a message, fit for a proto string and a terminal: invalid UTF-8 becomes U+FFFD, control
// characters '?'.
std::string Printable(std::string_view text);

}  // namespace bulkhead::worker
