// What the pre-tokenisers ask of a code point. Our own table, so that ids do not depend on a library's Unicode version.
#pragma once

#include <cstdint>

namespace bulkhead::engine {

enum class CodePointClass : uint8_t { kOther, kLetter, kNumber, kSpace, kNewline };  // kNewline: CR and LF

// \p{L}, \p{N}, \s (White_Space) or none of them; kInvalidCodePoint is kOther.
CodePointClass ClassOf(uint32_t code);

// \p{M}; for ClassOf these are kOther.
bool IsMark(uint32_t code);

}  // namespace bulkhead::engine
