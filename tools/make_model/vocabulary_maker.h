// Vocabularies of any size that the tokenizers accept: byte-level BPE whose every merge makes a new piece, or SPM with
// byte fallback. Both end with the control tokens of ChatML.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/make_model/gguf_writer.h"

namespace bulkhead::tools {

struct MadeVocabulary {
  std::vector<std::string> pieces;
  std::vector<int32_t> types;       // as tokenizer.ggml.token_type: 1 normal, 2 unknown, 3 control, 6 byte
  std::vector<std::string> merges;  // BPE only
  std::vector<float> scores;        // SPM only
  int32_t bos = 0;
  int32_t eos = 0;
};

// `size` at least 320.
MadeVocabulary MakeBpe(uint32_t size, uint64_t seed);
MadeVocabulary MakeSpm(uint32_t size, uint64_t seed);

// tokenizer.ggml.* keys.
void AddBpe(const MadeVocabulary& vocabulary, GgufWriter& writer);
void AddSpm(const MadeVocabulary& vocabulary, GgufWriter& writer);

// tokenizer.chat_template: ChatML.
void AddChatMl(GgufWriter& writer);

}  // namespace bulkhead::tools
