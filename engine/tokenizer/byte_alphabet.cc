#include "engine/tokenizer/byte_alphabet.h"

#include <array>

#include "engine/tokenizer/utf8.h"

namespace bulkhead::engine {
namespace {

constexpr uint32_t kFirstStandIn = 0x100;

constexpr bool IsItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Letter {
  char text[2] = {};
  uint8_t size = 0;
};

struct Alphabet {
  std::array<Letter, 256> letters;
  std::array<uint8_t, 256> stand_ins{};  // byte of code point kFirstStandIn + i
  uint32_t stand_in_count = 0;
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t code = byte;
    if (!IsItself(byte)) {
      code = kFirstStandIn + alphabet.stand_in_count;
      alphabet.stand_ins[alphabet.stand_in_count++] = static_cast<uint8_t>(byte);
    }
    Letter& letter = alphabet.letters[byte];
    if (code < 0x80) {
      letter = {{static_cast<char>(code), 0}, 1};
    } else {
      letter = {{static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))}, 2};
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string_view ByteLetter(uint8_t byte) {
  const Letter& letter = kAlphabet.letters[byte];
  return {letter.text, letter.size};
}

std::optional<uint8_t> ByteOfLetter(uint32_t code) {
  if (code < 0x100) return IsItself(code) ? std::optional(static_cast<uint8_t>(code)) : std::nullopt;
  if (code - kFirstStandIn >= kAlphabet.stand_in_count) return std::nullopt;
  return kAlphabet.stand_ins[code - kFirstStandIn];
}

void AppendDecoded(std::string_view piece, std::string& out) {
  for (size_t at = 0; at < piece.size();) {
    const CodePoint code = DecodeCodePoint(piece.substr(at));
    const std::optional<uint8_t> byte = ByteOfLetter(code.value);
    if (byte.has_value()) {
      out.push_back(static_cast<char>(*byte));
    } else {
      out.append(piece.substr(at, code.bytes));
    }
    at += code.bytes;
  }
}

}  // namespace bulkhead::engine
