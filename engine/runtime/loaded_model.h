// Everything that comes from one model file: its map, header, weights and tokenizer. Immutable once loaded, shared by
// engines; the views inside point into the map it owns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/mapped_file.h"
#include "base/status.h"

namespace bulkhead::gguf {
class File;
}
namespace bulkhead::tokenizer {
class Tokenizer;
}

namespace bulkhead::engine {

class Model;

// Called on the loading thread: at each phase ("header", "tokenizer", "weights", "warm") and at least every 250 ms or
// 1 %. Returning false gives up: the load ends with kCancelled.
using LoadProgress = std::function<bool(std::string_view phase, uint64_t done, uint64_t total)>;

class LoadedModel {
 public:
  // Maps `fd` (which stays the caller's), checks header, tokenizer and every tensor, and reads the weights once so that
  // they are in the page cache. kModelInvalid names what is wrong with the file, kModelUnsupported what we cannot run.
  static absl::StatusOr<std::shared_ptr<const LoadedModel>> Load(int fd, const LoadProgress& progress = nullptr);
  ~LoadedModel();

  [[nodiscard]] const gguf::File& file() const { return *file_; }
  [[nodiscard]] const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] const Model& model() const { return *model_; }

 private:
  explicit LoadedModel(MappedFile map);

  MappedFile map_;
  std::unique_ptr<const gguf::File> file_;
  std::unique_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<const Model> model_;
};

}  // namespace bulkhead::engine
