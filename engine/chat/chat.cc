#include "engine/chat/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/chat/template_source.h"

namespace bulkhead::engine {
namespace {

constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kThinkStart = "<think>";

// FNV-1a, 64 bits.
uint64_t Fingerprint(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

struct KnownTemplate {
  uint64_t fingerprint;  // of the canonical text
  bool handles_thinking;
};

constexpr std::array kKnown = {
    KnownTemplate{0xc49c9752776f88a3, false},  // Qwen2.5 and those made after it
    KnownTemplate{0xbde2f93af976ba43, true},   // Qwen3
};

// Whether `text` is a loop over the messages and nothing more, as most ChatML templates are.
bool IsPlainLoop(std::string_view text) {
  const auto skip = [&](std::string_view part) {
    const bool there = text.starts_with(part);
    if (there) text.remove_prefix(part.size());
    return there;
  };
  skip("{%ifnotadd_generation_promptisdefined%}{%setadd_generation_prompt=false%}{%endif%}");
  if (!skip("{%formessageinmessages%}")) return false;
  skip("{%ifloop.firstandmessages[0].role!='system'%}{{'<|im_start|>system\n<|im_end|>\n'}}{%endif%}");
  if (!skip("{{'<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>")) return false;
  if (!skip("'+'\n'}}") && !skip("\n'}}")) return false;
  return text == "{%endfor%}{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}{%endif%}";
}

std::string_view StripNewlines(std::string_view text, bool front, bool back) {
  while (front && text.starts_with('\n')) text.remove_prefix(1);
  while (back && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

bool IsToolResponse(const ChatMessage& message) {
  return message.content.starts_with("<tool_response>") && message.content.ends_with("</tool_response>");
}

// The last message of the user that is a question; where there is none, the last message.
size_t LastQuestion(std::span<const ChatMessage> messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role == "user" && !IsToolResponse(messages[i])) return i;
  }
  return messages.size() - 1;
}

struct Answer {
  std::string_view thinking;
  std::string_view content;
};

Answer SplitThinking(std::string_view text) {
  const size_t end = text.rfind(kThinkEnd);
  if (end == std::string_view::npos) return {{}, text};
  Answer answer;
  answer.content = StripNewlines(text.substr(end + kThinkEnd.size()), true, false);
  std::string_view thinking = StripNewlines(text.substr(0, text.find(kThinkEnd)), false, true);
  const size_t start = thinking.rfind(kThinkStart);
  if (start != std::string_view::npos) thinking.remove_prefix(start + kThinkStart.size());
  answer.thinking = StripNewlines(thinking, true, true);
  return answer;
}

}  // namespace

ChatTemplate ChatTemplate::Detect(const GgufFile& file) {
  const GgufValue* value = file.Find("tokenizer.chat_template");
  const std::optional<std::string_view> source = value == nullptr ? std::nullopt : value->AsString();
  return source.has_value() ? FromSource(*source) : ChatTemplate();
}

ChatTemplate ChatTemplate::FromSource(std::string_view source) {
  ChatTemplate result;
  result.kind_ = ChatTemplateKind::kUnsupported;
  const std::optional<CanonicalTemplate> canonical = Canonicalise(source);
  if (!canonical.has_value()) return result;
  const auto* known = std::find_if(kKnown.begin(), kKnown.end(), [&](const KnownTemplate& row) {
    return row.fingerprint == Fingerprint(canonical->text);
  });
  if (known == kKnown.end() && !IsPlainLoop(canonical->text)) return result;
  result.kind_ = ChatTemplateKind::kChatMl;
  result.default_system_ = canonical->default_system;
  result.handles_thinking_ = known != kKnown.end() && known->handles_thinking;
  return result;
}

std::string_view ChatTemplate::name() const {
  switch (kind_) {
    case ChatTemplateKind::kNone:
      return "none";
    case ChatTemplateKind::kChatMl:
      return "chatml";
    case ChatTemplateKind::kUnsupported:
      break;
  }
  return "unsupported";
}

std::string ChatTemplate::ContentOf(std::span<const ChatMessage> messages, size_t index) const {
  const ChatMessage& message = messages[index];
  if (!handles_thinking_ || message.role != "assistant") return message.content;
  const Answer answer = SplitThinking(message.content);
  const bool shows_thinking =
      index > LastQuestion(messages) && (index + 1 == messages.size() || !answer.thinking.empty());
  if (!shows_thinking) return std::string(answer.content);
  return fmt::format("{}\n{}\n{}\n\n{}", kThinkStart, answer.thinking, kThinkEnd,
                     StripNewlines(answer.content, true, false));
}

absl::StatusOr<ChatPrompt> ChatTemplate::Render(std::span<const ChatMessage> messages) const {
  if (kind_ == ChatTemplateKind::kNone) {
    return Error(Reason::kTemplateUnsupported, "the model has no chat template: use --raw");
  }
  if (kind_ == ChatTemplateKind::kUnsupported) {
    return Error(Reason::kTemplateUnsupported,
                 "the model's chat template is not one of ChatML that is known: use --raw");
  }
  if (messages.empty()) return Error(Reason::kInvalidRequest, "messages: none");
  ChatPrompt prompt;
  if (default_system_.has_value() && messages[0].role != "system") {
    prompt.text = fmt::format("<|im_start|>system\n{}<|im_end|>\n", *default_system_);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return Error(Reason::kInvalidRequest,
                   fmt::format("messages[{}].role: \"{}\" is not system, user or assistant", i, Printable(role)));
    }
    prompt.text += fmt::format("<|im_start|>{}\n", role);
    const size_t begin = prompt.text.size();
    prompt.text += ContentOf(messages, i);
    if (prompt.text.size() > begin) prompt.literal.push_back({begin, prompt.text.size()});
    prompt.text += "<|im_end|>\n";
  }
  prompt.text += "<|im_start|>assistant\n";
  return prompt;
}

}  // namespace bulkhead::engine
