// Tokenizers over vocabularies written by a test.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/tokenizer/tokenizer.h"
#include "tools/make_model/gguf_writer.h"

namespace bulkhead::engine {

struct MadeTokenizer {
  std::string bytes;
  std::optional<GgufFile> file;
  std::optional<Tokenizer> tokenizer;
};

// The tokenizer of a file with the keys that `add_keys` writes, or why there is none.
inline absl::StatusOr<std::unique_ptr<MadeTokenizer>> TryTokenizer(
    const std::function<void(tools::GgufWriter&)>& add_keys) {
  tools::GgufWriter writer;
  add_keys(writer);
  auto made = std::make_unique<MadeTokenizer>();
  made->bytes = writer.Header();
  ASSIGN_OR_RETURN(made->file, GgufFile::Parse(std::as_bytes(std::span(made->bytes))));
  ASSIGN_OR_RETURN(made->tokenizer, Tokenizer::Create(*made->file));
  return made;
}

inline std::unique_ptr<MadeTokenizer> MustTokenizer(const std::function<void(tools::GgufWriter&)>& add_keys) {
  auto made = TryTokenizer(add_keys);
  EXPECT_TRUE(made.ok()) << Message(made.status());
  return made.ok() ? *std::move(made) : nullptr;
}

}  // namespace bulkhead::engine
