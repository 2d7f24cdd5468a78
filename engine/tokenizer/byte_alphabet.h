// The alphabet in which byte-level vocabularies write bytes: printable Latin-1 bytes stand for themselves, the others,
// in order, for the code points from U+0100 on (Radford et al. 2019, "Language Models are Unsupervised Multitask
// Learners", encoder.py). Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bulkhead::engine {

// The letter for `byte`, UTF-8 of 1 or 2 bytes; static storage.
std::string_view ByteLetter(uint8_t byte);

// The byte a code point stands for; nullopt for one that is no letter of the alphabet.
std::optional<uint8_t> ByteOfLetter(uint32_t code);

// Appends the bytes a piece stands for; what is not of the alphabet is copied as it is.
void AppendDecoded(std::string_view piece, std::string& out);

}  // namespace bulkhead::engine
