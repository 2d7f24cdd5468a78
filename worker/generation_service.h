// Requests of the daemon on their way into the engine, and what the engine produces on its way out. Prompts are turned
// into ids on the intake thread, so that neither the control session nor the engine waits for a long text.
//
// Output is bounded: while the daemon does not read, every sequence is paused; what is still under way then is at most
// one step and one terminal a request.
//
// Thread rule: the calls named "main" on the control session's thread, the sink's on the engine thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "bulkhead/v1/worker.pb.h"
#include "engine/runtime/generation.h"

namespace bulkhead::engine {
class ContinuousBatchEngine;
class EngineThread;
class LoadedModel;
}  // namespace bulkhead::engine

namespace bulkhead::worker {

class Hooks;
class Outbox;

class GenerationService final : public engine::GenerationSink {
 public:
  // All outlive the service; `hooks` may be null.
  GenerationService(Outbox* outbox, engine::EngineThread* intake, Hooks* hooks)
      : outbox_(*outbox), intake_(*intake), hooks_(hooks) {}

  // Main, once, before any of the following.
  void Attach(std::shared_ptr<const engine::LoadedModel> model, engine::ContinuousBatchEngine* engine);

  // Main. Every handle gets exactly one terminal; an unknown one in Cancel or Pause has ended already.
  void Generate(const v1::WorkerGenerate& generate);
  void Cancel(uint64_t handle);
  void Pause(uint64_t handle, bool paused);
  void Tokenize(const v1::WorkerTokenize& tokenize);
  // Main, often: lets sequences go on once the daemon has read.
  void ResumeIfDrained();
  [[nodiscard]] bool busy();

  void OnStarted(uint64_t id, uint32_t prompt_tokens, uint32_t context) override;
  void OnStep(std::span<const engine::SequenceOutput> outputs) override;

 private:
  struct Request {
    std::vector<int32_t> prompt_ids;  // until OnStarted
    bool submitted = false;
    bool cancelled = false;
    bool paused = false;  // by the daemon
  };

  // Intake thread.
  void Admit(const v1::WorkerGenerate& generate);
  absl::StatusOr<std::vector<int32_t>> PromptIds(const v1::WorkerGenerate& generate) const;
  absl::Status Submit(engine::GenerationRequest request);
  void RunTokenize(const v1::WorkerTokenize& tokenize);

  absl::Status Register(uint64_t handle, size_t bytes);
  void EndAtIntake(uint64_t handle, uint64_t index, const absl::Status& why);
  void PauseIfCongested();

  Outbox& outbox_;
  engine::EngineThread& intake_;
  Hooks* hooks_;
  std::shared_ptr<const engine::LoadedModel> model_;
  engine::ContinuousBatchEngine* engine_ = nullptr;

  std::mutex mutex_;  // never held while the outbox waits for anything, nor while ids are made
  std::unordered_map<uint64_t, Request> requests_;
  bool held_back_ = false;  // all paused because the daemon does not read
  std::atomic<size_t> intake_bytes_{0};

  // Engine thread.
  v1::WorkerFrame step_;
  uint64_t tokens_ = 0;
};

}  // namespace bulkhead::worker
