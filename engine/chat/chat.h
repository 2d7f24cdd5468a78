// From a conversation to the prompt a model was trained on. Known is ChatML ("<|im_start|>role\n...<|im_end|>\n") as
// the template in the file writes it; a file with any other template is refused with kTemplateUnsupported ("use
// --raw"), as a wrong prompt would be worse than none. Thread-safe: immutable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/gguf/gguf.h"
#include "engine/tokenizer/byte_range.h"

namespace bulkhead::engine {

struct ChatMessage {
  std::string role;  // system, user or assistant
  std::string content;
};

// A rendered conversation, to be encoded with parse_special and `literal`, so that no message can end itself.
struct ChatPrompt {
  std::string text;
  std::vector<ByteRange> literal;  // where the messages' own words stand
};

enum class ChatTemplateKind : uint8_t { kNone, kChatMl, kUnsupported };

class ChatTemplate {
 public:
  // Looks at tokenizer.chat_template. Never fails: what cannot be used is kUnsupported.
  static ChatTemplate Detect(const GgufFile& file);
  static ChatTemplate FromSource(std::string_view source);

  [[nodiscard]] ChatTemplateKind kind() const { return kind_; }
  // "chatml", "none" or "unsupported", as the manifest writes it.
  [[nodiscard]] std::string_view name() const;

  // The prompt that asks for the assistant's next message. kTemplateUnsupported where the kind is not kChatMl;
  // kInvalidRequest for no messages or an unknown role.
  [[nodiscard]] absl::StatusOr<ChatPrompt> Render(std::span<const ChatMessage> messages) const;

 private:
  [[nodiscard]] std::string ContentOf(std::span<const ChatMessage> messages, size_t index) const;

  ChatTemplateKind kind_ = ChatTemplateKind::kNone;
  std::optional<std::string>
      default_system_;             // what the template says where the conversation begins without a system message
  bool handles_thinking_ = false;  // answers before the last question lose their <think> part, later ones get one
};

}  // namespace bulkhead::engine
