#include "engine/sampling/text_stream.h"

namespace bulkhead::engine {

std::optional<size_t> TextStream::Push(int32_t id, std::string& text) {
  bytes_.clear();
  released_.clear();
  tokenizer_.AppendBytes(id, bytes_);
  const std::optional<size_t> matched = stops_.Push(bytes_, released_);
  detokenizer_.Push(released_, text);
  return matched;
}

bool TextStream::Finish(std::string& text) {
  released_.clear();
  stops_.Flush(released_);
  detokenizer_.Push(released_, text);
  return detokenizer_.Finish(text);
}

}  // namespace bulkhead::engine
