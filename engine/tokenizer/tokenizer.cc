#include "engine/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/tokenizer/bpe_encoder.h"
#include "engine/tokenizer/special_splitter.h"
#include "engine/tokenizer/spm_encoder.h"

namespace bulkhead::engine {
namespace {

// What the reference takes where a file is silent.
SpecialIds SpmDefaults() { return {.bos = 1, .eos = 2, .unknown = 0, .adds_bos = true, .adds_eos = false}; }

SpecialIds BpeDefaults(PreTokenizer pre_tokenizer) {
  return {.bos = 11, .eos = 11, .unknown = {}, .adds_bos = pre_tokenizer == PreTokenizer::kLlama3, .adds_eos = false};
}

absl::StatusOr<PreTokenizer> ReadPreTokenizer(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  if (file.Find(kKey) == nullptr) {
    return Error(Reason::kModelUnsupported, fmt::format("key {}: missing, so its pre-tokeniser is not known", kKey));
  }
  ASSIGN_OR_RETURN(const std::string_view name, file.GetString(kKey));
  const std::optional<PreTokenizer> kind = PreTokenizerByName(name);
  if (!kind.has_value()) return Error(Reason::kModelUnsupported, fmt::format("pre-tokeniser {}", Printable(name)));
  return *kind;
}

uint64_t CountOf(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.Find(key);
  return value != nullptr && value->type() == GgufType::kArray ? value->count() : 0;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerKind kind, std::unique_ptr<Vocabulary> vocabulary,
                     std::unique_ptr<SpecialSplitter> splitter, std::unique_ptr<TextEncoder> encoder)
    : kind_(kind), vocabulary_(std::move(vocabulary)), splitter_(std::move(splitter)), encoder_(std::move(encoder)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<Tokenizer> Tokenizer::Create(const GgufFile& file) {
  ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model != "llama" && model != "gpt2") {
    return Error(Reason::kModelUnsupported,
                 fmt::format("tokenizer {}: only llama (SPM) and gpt2 (byte-level BPE) are known", Printable(model)));
  }
  const bool spm = model == "llama";
  PreTokenizer pre_tokenizer = PreTokenizer::kGpt2;
  if (!spm) {
    ASSIGN_OR_RETURN(pre_tokenizer, ReadPreTokenizer(file));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Vocabulary> vocabulary,
                   Vocabulary::Create(file, spm ? SpmDefaults() : BpeDefaults(pre_tokenizer)));
  std::unique_ptr<TextEncoder> encoder;
  if (spm) {
    ASSIGN_OR_RETURN(encoder, SpmEncoder::Create(file, *vocabulary));
  } else {
    ASSIGN_OR_RETURN(encoder, BpeEncoder::Create(file, *vocabulary, pre_tokenizer));
  }
  auto splitter = std::make_unique<SpecialSplitter>(*vocabulary);
  return Tokenizer(spm ? TokenizerKind::kSpm : TokenizerKind::kBpe, std::move(vocabulary), std::move(splitter),
                   std::move(encoder));
}

uint64_t Tokenizer::TableBytes(const GgufFile& file) {
  const uint64_t pieces = CountOf(file, "tokenizer.ggml.tokens");
  const uint64_t merges = CountOf(file, "tokenizer.ggml.merges");
  return pieces * (sizeof(std::string_view) + sizeof(PieceKind)) + PieceTable::TableBytes(pieces) +
         MergeTable::TableBytes(merges);
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::vector<int32_t> ids;
  const SpecialIds& special = vocabulary_->special();
  if (options.add_special && special.adds_bos) ids.push_back(*special.bos);
  bool after_special = true;
  for (const Fragment& fragment : splitter_->Split(text, options.parse_special, options.literal)) {
    if (fragment.token >= 0) {
      ids.push_back(fragment.token);
    } else {
      encoder_->Encode(text.substr(fragment.text.begin, fragment.text.end - fragment.text.begin), after_special, ids);
    }
    after_special = fragment.token >= 0;
  }
  if (options.add_special && special.adds_eos) ids.push_back(*special.eos);
  return ids;
}

uint64_t Tokenizer::FewestTokens(uint64_t bytes) const {
  return bytes / vocabulary_->longest_piece() + (bytes % vocabulary_->longest_piece() != 0 ? 1 : 0);
}

uint32_t Tokenizer::size() const { return vocabulary_->size(); }

void Tokenizer::AppendBytes(int32_t id, std::string& out, bool special) const {
  if (!vocabulary_->Contains(id)) return;
  switch (vocabulary_->kind(id)) {
    case PieceKind::kControl:
    case PieceKind::kUnknown:
      if (special) out.append(vocabulary_->piece(id));
      return;
    case PieceKind::kUserDefined:
      out.append(vocabulary_->piece(id));
      return;
    case PieceKind::kUnused:
      return;
    case PieceKind::kNormal:
    case PieceKind::kByte:
      encoder_->AppendBytes(id, out);
  }
}

std::string_view Tokenizer::Piece(int32_t id) const {
  return vocabulary_->Contains(id) ? vocabulary_->piece(id) : std::string_view();
}
std::optional<int32_t> Tokenizer::Find(std::string_view piece) const { return vocabulary_->Find(piece); }
bool Tokenizer::IsControl(int32_t id) const {
  return vocabulary_->Contains(id) && vocabulary_->kind(id) == PieceKind::kControl;
}
std::optional<int32_t> Tokenizer::bos() const { return vocabulary_->special().bos; }
std::optional<int32_t> Tokenizer::eos() const { return vocabulary_->special().eos; }
bool Tokenizer::adds_bos() const { return vocabulary_->special().adds_bos; }
bool Tokenizer::adds_eos() const { return vocabulary_->special().adds_eos; }
std::span<const int32_t> Tokenizer::end_of_generation() const { return vocabulary_->end_of_generation(); }
bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  const std::span<const int32_t> ids = end_of_generation();
  return std::binary_search(ids.begin(), ids.end(), id);
}

}  // namespace bulkhead::engine
