// Everything that comes from one model file: its map, header, weights, tokenizer and chat template. Immutable once
// loaded, shared by engines; the views inside point into the map it owns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/mapped_file.h"
#include "base/status.h"
#include "engine/chat/chat.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/sampling/params.h"
#include "engine/tokenizer/tokenizer.h"

namespace bulkhead::engine {

// Called on the loading thread: at each phase ("header", "tokenizer", "weights", "warm") and at least every 250 ms or
// 1 %. Returning false gives up: the load ends with kCancelled.
using LoadProgress = std::function<bool(std::string_view phase, uint64_t done, uint64_t total)>;

class LoadedModel {
 public:
  // Maps `fd` (which stays the caller's), checks header, tokenizer and every tensor, and reads the weights once so that
  // they are in the page cache. kModelInvalid names what is wrong with the file, kModelUnsupported what we cannot run.
  static absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(int fd, const LoadProgress& progress = nullptr);
  // The same, without reading the weights: for programs that look at the file only.
  static absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadCold(int fd, const LoadProgress& progress = nullptr);

  [[nodiscard]] const GgufFile& file() const { return file_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] const ChatTemplate& chat() const { return chat_; }
  [[nodiscard]] const Model& model() const { return *model_; }
  // What a request's absent sampling fields take.
  [[nodiscard]] const SamplingParams& sampling_defaults() const { return sampling_defaults_; }

 private:
  LoadedModel(MappedFile map, GgufFile file, Tokenizer tokenizer, std::unique_ptr<const Model> model);

  MappedFile map_;
  GgufFile file_;
  Tokenizer tokenizer_;
  ChatTemplate chat_;
  SamplingParams sampling_defaults_;
  std::unique_ptr<const Model> model_;
};

}  // namespace bulkhead::engine
