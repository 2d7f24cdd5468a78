// Any bytes as a model file: parsed, every value and tensor touched, and its tokenizer, template and sampling defaults
// used where the file gets that far.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/chat/chat.h"
#include "engine/gguf/gguf.h"
#include "engine/sampling/params.h"
#include "engine/tokenizer/tokenizer.h"

namespace bulkhead::engine {
namespace {

uint64_t Touch(const GgufValue& value) {
  uint64_t sum = value.AsUnsigned().value_or(0) + value.AsString().value_or("").size();
  if (const auto strings = value.AsStrings(); strings.has_value()) {
    for (const std::string_view text : *strings) sum += text.empty() ? 0 : static_cast<uint8_t>(text.back());
  }
  for (uint64_t i = 0; i < value.count() && value.type() == GgufType::kArray; ++i) {
    sum += value.UnsignedAt(i).value_or(0);
  }
  return sum;
}

uint64_t TouchAll(const GgufFile& file) {
  uint64_t sum = 0;
  for (const GgufFile::Key& key : file.keys()) sum += Touch(*file.Find(key.name));
  for (const TensorInfo& tensor : file.tensors()) sum += static_cast<uint8_t>(tensor.bytes.back()) + tensor.weights();
  return sum;
}

void UseTokenizer(const GgufFile& file) {
  const auto tokenizer = Tokenizer::Create(file);
  if (!tokenizer.ok()) return;
  for (const std::string_view text :
       {"Hello, world's 123\n\n  x", "<s><|im_end|>\xff\xe2\x96", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    std::string bytes;
    for (const int32_t id : tokenizer->Encode(text, {.add_special = true, .parse_special = true, .literal = {}})) {
      tokenizer->AppendBytes(id, bytes);
    }
  }
}

}  // namespace
}  // namespace bulkhead::engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bulkhead::engine;
  const auto file = GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  volatile uint64_t sum = TouchAll(*file);
  (void)sum;
  UseTokenizer(*file);
  (void)ChatTemplate::Detect(*file);
  (void)DefaultSampling(*file);
  return 0;
}
