#include "engine/tokenizer/spm_encoder.h"

#include <fmt/format.h>

#include <cmath>
#include <queue>

#include "engine/tokenizer/utf8.h"

namespace bulkhead::engine {
namespace {

constexpr std::string_view kEscapedSpace = "\xe2\x96\x81";

std::string EscapeSpaces(std::string_view text, bool prefix) {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 3 + kEscapedSpace.size());
  if (prefix) escaped.append(kEscapedSpace);
  for (const char c : text) {
    if (c == ' ') {
      escaped.append(kEscapedSpace);
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte of a piece "<0xHH>"; -1 for any other.
int ByteOfPiece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const int high = HexDigit(piece[3]);
  const int low = HexDigit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

// Part of the text, a character or characters joined.
struct SpmEncoder::Symbol {
  uint32_t begin;
  uint32_t size;  // 0 once joined to its left neighbour
  int32_t left;
  int32_t right;
};

class SpmEncoder::Joiner {
 public:
  Joiner(const SpmEncoder& encoder, std::string_view text) : encoder_(encoder), text_(text) {
    for (size_t at = 0; at < text.size();) {
      const uint32_t size = DecodeCodePoint(text.substr(at)).bytes;
      const auto index = static_cast<int32_t>(symbols_.size());
      symbols_.push_back({static_cast<uint32_t>(at), size, index - 1, index + 1});
      at += size;
    }
    symbols_.back().right = -1;
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) PushPair(static_cast<int32_t>(i));
  }

  void JoinAll() {
    while (!queue_.empty()) {
      const Pair pair = queue_.top();
      queue_.pop();
      Symbol& left = symbols_[static_cast<size_t>(pair.left)];
      Symbol& right = symbols_[static_cast<size_t>(pair.right)];
      // A pair one of whose sides has changed since is stale.
      if (left.size == 0 || right.size == 0 || left.size + right.size != pair.size) continue;
      left.size = pair.size;
      left.right = right.right;
      right.size = 0;
      if (right.right >= 0) symbols_[static_cast<size_t>(right.right)].left = pair.left;
      PushPair(left.left);
      PushPair(pair.left);
    }
  }

  void EmitAll(std::vector<int32_t>& ids) const {
    for (int32_t at = 0; at >= 0; at = symbols_[static_cast<size_t>(at)].right) {
      const Symbol& symbol = symbols_[static_cast<size_t>(at)];
      encoder_.Emit(text_.substr(symbol.begin, symbol.size), ids);
    }
  }

 private:
  struct Pair {
    float score;
    int32_t left;
    int32_t right;
    uint32_t size;
  };
  struct GoesLater {
    bool operator()(const Pair& a, const Pair& b) const {
      return a.score != b.score ? a.score < b.score : a.left > b.left;
    }
  };

  void PushPair(int32_t left) {
    if (left < 0) return;
    const Symbol& l = symbols_[static_cast<size_t>(left)];
    if (l.right < 0) return;
    const uint32_t size = l.size + symbols_[static_cast<size_t>(l.right)].size;
    if (size > encoder_.vocabulary_.longest_piece()) return;
    const std::optional<int32_t> id = encoder_.vocabulary_.Find(text_.substr(l.begin, size));
    if (id.has_value()) queue_.push({encoder_.ScoreOf(*id), left, l.right, size});
  }

  const SpmEncoder& encoder_;
  std::string_view text_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair, std::vector<Pair>, GoesLater> queue_;
};

absl::StatusOr<std::unique_ptr<SpmEncoder>> SpmEncoder::Create(const GgufFile& file, const Vocabulary& vocabulary) {
  std::unique_ptr<SpmEncoder> encoder(new SpmEncoder(vocabulary));
  ASSIGN_OR_RETURN(encoder->space_prefix_, file.GetBool("tokenizer.ggml.add_space_prefix", true));
  RETURN_IF_ERROR(encoder->ReadScores(file));
  RETURN_IF_ERROR(encoder->ReadByteTokens());
  return encoder;
}

absl::Status SpmEncoder::ReadScores(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  const GgufValue* value = file.Find(kKey);
  if (value == nullptr) return absl::OkStatus();
  scores_ = value->AsFloats();
  if (!scores_.has_value() || scores_->size() != vocabulary_.size()) {
    return Error(Reason::kModelInvalid,
                 fmt::format("key {}: not an array of {} floats, one for each piece", kKey, vocabulary_.size()));
  }
  for (uint64_t id = 0; id < scores_->size(); ++id) {
    if (std::isnan((*scores_)[id])) {
      return Error(Reason::kModelInvalid, fmt::format("key {}: entry {} is not a number", kKey, id));
    }
  }
  return absl::OkStatus();
}

absl::Status SpmEncoder::ReadByteTokens() {
  byte_tokens_.fill(vocabulary_.special().unknown.value_or(-1));
  for (int32_t id = 0; id < static_cast<int32_t>(vocabulary_.size()); ++id) {
    if (vocabulary_.kind(id) != PieceKind::kByte) continue;
    const int byte = ByteOfPiece(vocabulary_.piece(id));
    if (byte < 0) {
      return Error(Reason::kModelInvalid, fmt::format("tokenizer.ggml.tokens: byte token {} \"{}\" is not <0xHH>", id,
                                                      Printable(vocabulary_.piece(id))));
    }
    byte_tokens_[static_cast<size_t>(byte)] = id;
  }
  return absl::OkStatus();
}

float SpmEncoder::ScoreOf(int32_t id) const { return scores_.has_value() ? (*scores_)[static_cast<uint64_t>(id)] : 0; }

void SpmEncoder::Encode(std::string_view text, bool after_special, std::vector<int32_t>& ids) const {
  const std::string escaped = EscapeSpaces(text, space_prefix_ && after_special);
  Joiner joiner(*this, escaped);
  joiner.JoinAll();
  joiner.EmitAll(ids);
}

void SpmEncoder::Emit(std::string_view text, std::vector<int32_t>& ids) const {
  if (const std::optional<int32_t> id = vocabulary_.Find(text); id.has_value()) {
    ids.push_back(*id);
    return;
  }
  for (const char c : text) {
    const int32_t id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id >= 0) ids.push_back(id);
  }
}

void SpmEncoder::AppendBytes(int32_t id, std::string& out) const {
  std::string_view piece = vocabulary_.piece(id);
  if (vocabulary_.kind(id) == PieceKind::kByte) {
    out.push_back(static_cast<char>(ByteOfPiece(piece)));
    return;
  }
  while (!piece.empty()) {
    const size_t space = piece.find(kEscapedSpace);
    out.append(piece.substr(0, space));
    if (space == std::string_view::npos) return;
    out.push_back(' ');
    piece.remove_prefix(space + kEscapedSpace.size());
  }
}

}  // namespace bulkhead::engine
