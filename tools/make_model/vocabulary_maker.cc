#include "tools/make_model/vocabulary_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "tools/make_model/random_weights.h"

namespace bulkhead::tools {
namespace {

constexpr int32_t kNormal = 1;
constexpr int32_t kUnknown = 2;
constexpr int32_t kControl = 3;
constexpr int32_t kByte = 6;
constexpr size_t kLongestPiece = 16;
constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr std::string_view kMessageStart = "<|im_start|>";
constexpr std::string_view kMessageEnd = "<|im_end|>";
constexpr std::string_view kSpmSpace = "\xe2\x96\x81";

std::string Utf8(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

bool IsShownAsItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// The byte-level alphabet: printable bytes stand for themselves, the others for code points from 256 on.
std::vector<std::string> ByteAlphabet() {
  std::vector<std::string> pieces;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (IsShownAsItself(byte)) pieces.push_back(Utf8(byte));
  }
  for (uint32_t next = 256; pieces.size() < 256; ++next) pieces.push_back(Utf8(next));
  return pieces;
}

void Add(MadeVocabulary& vocabulary, std::string piece, int32_t type) {
  vocabulary.pieces.push_back(std::move(piece));
  vocabulary.types.push_back(type);
}

// Joins of earlier pieces, each new, until `size` pieces are there. `first`: where joinable pieces begin.
template <typename OnJoin>
void GrowByJoining(MadeVocabulary& vocabulary, size_t first, size_t size, RandomBits& random, OnJoin on_join) {
  std::unordered_set<std::string> known(vocabulary.pieces.begin(), vocabulary.pieces.end());
  known.reserve(size);
  // Early pieces are short: with one of them on the right few joins are too long.
  constexpr uint32_t kEarly = 1024;
  while (vocabulary.pieces.size() < size) {
    const auto range = static_cast<uint32_t>(vocabulary.pieces.size() - first);
    const std::string& left = vocabulary.pieces[first + random.Below(range)];
    const std::string& right = vocabulary.pieces[first + random.Below(std::min(range, kEarly))];
    if (left.size() + right.size() > kLongestPiece || !known.insert(left + right).second) continue;
    on_join(left, right);
    Add(vocabulary, left + right, kNormal);
  }
}

}  // namespace

MadeVocabulary MakeBpe(uint32_t size, uint64_t seed) {
  MadeVocabulary vocabulary;
  RandomBits random(seed);
  for (std::string& piece : ByteAlphabet()) Add(vocabulary, std::move(piece), kNormal);
  // Lower-case letters come before everything else that joins, so that most merges can occur in text.
  for (char left = 'a'; left <= 'h'; ++left) {
    for (const char right : std::string_view("aeio")) {
      Add(vocabulary, {left, right}, kNormal);
      vocabulary.merges.push_back(fmt::format("{} {}", left, right));
    }
  }
  GrowByJoining(vocabulary, 0, size - 3, random, [&](const std::string& left, const std::string& right) {
    vocabulary.merges.push_back(left + " " + right);
  });
  vocabulary.bos = static_cast<int32_t>(size - 3);
  vocabulary.eos = static_cast<int32_t>(size - 1);
  for (const std::string_view token : {kEndOfText, kMessageStart, kMessageEnd}) {
    Add(vocabulary, std::string(token), kControl);
  }
  return vocabulary;
}

MadeVocabulary MakeSpm(uint32_t size, uint64_t seed) {
  MadeVocabulary vocabulary;
  RandomBits random(seed);
  Add(vocabulary, "<unk>", kUnknown);
  Add(vocabulary, "<s>", kControl);
  Add(vocabulary, "</s>", kControl);
  for (uint32_t byte = 0; byte < 256; ++byte) Add(vocabulary, fmt::format("<0x{:02X}>", byte), kByte);
  const size_t first = vocabulary.pieces.size();
  Add(vocabulary, std::string(kSpmSpace), kNormal);
  for (char letter = 'a'; letter <= 'z'; ++letter) Add(vocabulary, std::string(1, letter), kNormal);
  GrowByJoining(vocabulary, first, size - 2, random, [](const std::string&, const std::string&) {});
  for (const std::string_view token : {kMessageStart, kMessageEnd}) Add(vocabulary, std::string(token), kControl);
  vocabulary.scores.resize(size);
  for (size_t id = first; id < size - 2; ++id) vocabulary.scores[id] = -static_cast<float>(id - first);
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  return vocabulary;
}

void AddBpe(const MadeVocabulary& vocabulary, GgufWriter& writer) {
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "qwen2");
  writer.AddStrings("tokenizer.ggml.tokens", vocabulary.pieces);
  writer.AddInts("tokenizer.ggml.token_type", vocabulary.types);
  writer.AddStrings("tokenizer.ggml.merges", vocabulary.merges);
  writer.AddU32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(vocabulary.bos));
  writer.AddU32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(vocabulary.eos));
  writer.AddBool("tokenizer.ggml.add_bos_token", false);
}

void AddSpm(const MadeVocabulary& vocabulary, GgufWriter& writer) {
  writer.AddString("tokenizer.ggml.model", "llama");
  writer.AddStrings("tokenizer.ggml.tokens", vocabulary.pieces);
  writer.AddInts("tokenizer.ggml.token_type", vocabulary.types);
  writer.AddFloats("tokenizer.ggml.scores", vocabulary.scores);
  writer.AddU32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(vocabulary.bos));
  writer.AddU32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(vocabulary.eos));
  writer.AddU32("tokenizer.ggml.unknown_token_id", 0);
}

void AddChatMl(GgufWriter& writer) {
  writer.AddString("tokenizer.chat_template",
                   "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                   "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                   "{% endif %}");
}

}  // namespace bulkhead::tools
