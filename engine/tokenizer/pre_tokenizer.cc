#include "engine/tokenizer/pre_tokenizer.h"

#include <array>

#include "engine/tokenizer/code_point_class.h"
#include "engine/tokenizer/utf8.h"

namespace bulkhead::engine {
namespace {

using enum CodePointClass;

struct Peek {
  CodePointClass kind = kOther;
  size_t bytes = 0;  // 0 at the text's end
};

// What a combining mark counts as.
enum class Marks : uint8_t { kOther, kLetters };

Peek PeekAt(std::string_view text, size_t at, Marks marks = Marks::kOther) {
  if (at >= text.size()) return {};
  const CodePoint code = DecodeCodePoint(text.substr(at));
  if (marks == Marks::kLetters && IsMark(code.value)) return {kLetter, code.bytes};
  return {ClassOf(code.value), code.bytes};
}

bool IsSpace(CodePointClass kind) { return kind == kSpace || kind == kNewline; }

// End of the run of `kind` that begins at `at`, at most `limit` code points long.
size_t RunEnd(std::string_view text, size_t at, CodePointClass kind, size_t limit = SIZE_MAX,
              Marks marks = Marks::kOther) {
  Peek next = PeekAt(text, at, marks);
  for (; next.bytes > 0 && next.kind == kind && limit > 0; next = PeekAt(text, at, marks)) {
    at += next.bytes;
    --limit;
  }
  return at;
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at the start; 0 where none is there.
size_t Contraction(std::string_view text, bool any_case) {
  constexpr std::array<std::string_view, 7> kEndings = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (text[0] != '\'') return 0;
  for (const std::string_view ending : kEndings) {
    if (text.size() <= ending.size()) continue;
    bool same = true;
    for (size_t i = 0; i < ending.size(); ++i) {
      const char c = text[i + 1];
      same = same && (any_case ? Lower(c) : c) == ending[i];
    }
    if (same) return ending.size() + 1;
  }
  return 0;
}

struct SpaceRun {
  size_t end = 0;          // of the whole run
  size_t last_start = 0;   // of its last code point
  size_t newline_end = 0;  // behind its last newline; 0 = none
};

SpaceRun ScanSpaces(std::string_view text) {
  SpaceRun run;
  for (Peek next = PeekAt(text, 0); next.bytes > 0 && IsSpace(next.kind); next = PeekAt(text, run.end)) {
    run.last_start = run.end;
    run.end += next.bytes;
    if (next.kind == kNewline) run.newline_end = run.end;
  }
  return run;
}

// \s+(?!\S)|\s+ : all of the run at the text's end, else all but its last code point, which may belong to what follows.
size_t SpacesBeforeWord(std::string_view text, const SpaceRun& run) {
  if (run.end == text.size() || run.last_start == 0) return run.end;
  return run.last_start;
}

size_t NextGpt2Word(std::string_view text) {
  if (const size_t size = Contraction(text, false); size > 0) return size;
  const size_t space = text[0] == ' ' ? 1 : 0;
  const Peek first = PeekAt(text, space);
  if (first.bytes > 0 && !IsSpace(first.kind)) return RunEnd(text, space, first.kind);
  return SpacesBeforeWord(text, ScanSpaces(text));
}

// Numbers stand alone, so what is before one ends like a text.
size_t NextRefactWord(std::string_view text) {
  const Peek first = PeekAt(text, 0);
  if (first.kind == kNumber) return first.bytes;
  if (IsSpace(first.kind)) {
    const SpaceRun run = ScanSpaces(text);
    if (PeekAt(text, run.end).kind == kNumber) return run.end;
  }
  return NextGpt2Word(text);
}

// A mark may stand at a word's start in two ways of the pattern; both take the same run.
size_t NextQwen2Word(std::string_view text, size_t digits, Marks marks) {
  if (const size_t size = Contraction(text, true); size > 0) return size;
  const auto run_end = [text, marks](size_t at, CodePointClass kind) {
    return RunEnd(text, at, kind, SIZE_MAX, marks);
  };
  const Peek first = PeekAt(text, 0, marks);
  if (first.kind == kLetter) return run_end(0, kLetter);
  if (first.kind == kNumber) return RunEnd(text, 0, kNumber, digits);
  const Peek second = PeekAt(text, first.bytes, marks);
  if (first.kind != kNewline && second.bytes > 0 && second.kind == kLetter) return run_end(first.bytes, kLetter);
  const bool space_then_other = text[0] == ' ' && second.bytes > 0 && second.kind == kOther;
  if (first.kind == kOther || space_then_other) {
    return run_end(run_end(space_then_other ? 1 : 0, kOther), kNewline);
  }
  const SpaceRun run = ScanSpaces(text);
  return run.newline_end > 0 ? run.newline_end : SpacesBeforeWord(text, run);
}

}  // namespace

std::optional<PreTokenizer> PreTokenizerByName(std::string_view name) {
  struct Row {
    std::string_view name;
    PreTokenizer kind;
  };
  constexpr std::array kNames = {
      Row{"qwen2", PreTokenizer::kQwen2},
      Row{"deepseek-r1-qwen", PreTokenizer::kQwen2},
      Row{"qwen35", PreTokenizer::kQwen35},
      Row{"llama-bpe", PreTokenizer::kLlama3},
      Row{"llama3", PreTokenizer::kLlama3},
      Row{"llama-v3", PreTokenizer::kLlama3},
      Row{"lfm2", PreTokenizer::kLlama3},
      Row{"dbrx", PreTokenizer::kThreeDigits},
      Row{"smaug-bpe", PreTokenizer::kThreeDigits},
      Row{"refact", PreTokenizer::kRefact},
      Row{"gpt-2", PreTokenizer::kGpt2},
      Row{"mpt", PreTokenizer::kGpt2},
      Row{"olmo", PreTokenizer::kGpt2},
      Row{"phi-2", PreTokenizer::kGpt2},
  };
  for (const Row& row : kNames) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

size_t NextWord(PreTokenizer kind, std::string_view text) {
  switch (kind) {
    case PreTokenizer::kGpt2:
      return NextGpt2Word(text);
    case PreTokenizer::kQwen2:
      return NextQwen2Word(text, 1, Marks::kOther);
    case PreTokenizer::kQwen35:
      return NextQwen2Word(text, 1, Marks::kLetters);
    case PreTokenizer::kLlama3:
    case PreTokenizer::kThreeDigits:
      return NextQwen2Word(text, 3, Marks::kOther);
    case PreTokenizer::kRefact:
      return NextRefactWord(text);
  }
  return text.size();
}

}  // namespace bulkhead::engine
