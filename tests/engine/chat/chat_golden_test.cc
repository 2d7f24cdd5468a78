#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "engine/chat/chat.h"
#include "tests/engine/support/golden_files.h"

namespace bulkhead::engine {
namespace {

using nlohmann::json;

// The conversations a request can express: plain messages of the three roles, asking for an answer.
std::vector<ChatMessage> Expressible(const json& conversation) {
  std::vector<ChatMessage> messages;
  if (!conversation.value("add_generation_prompt", false) || conversation.contains("tools")) return {};
  if (conversation.contains("enable_thinking") && !conversation["enable_thinking"].get<bool>()) return {};
  for (const json& message : conversation["messages"]) {
    const auto role = message["role"].get<std::string>();
    if (role != "system" && role != "user" && role != "assistant") return {};
    if (message.size() != 2 || !message["content"].is_string()) return {};
    messages.push_back({role, message["content"].get<std::string>()});
  }
  return messages;
}

TEST(ChatGolden, EveryTemplateThatIsNotRefusedIsRenderedExactly) {
  const auto golden = tests::SharedGolden();
  if (!golden.has_value()) GTEST_SKIP() << "[no-shared-golden] templates";
  const json conversations = tests::ReadJson(*golden + "/templates/conversations.json");
  const json templates = tests::ReadJson(*golden + "/templates/templates.json");
  std::set<std::string> accepted;
  int compared = 0;
  for (const json& entry : templates["templates"]) {
    const auto name = entry["name"].get<std::string>();
    const ChatTemplate chat = ChatTemplate::FromSource(entry["template"].get<std::string>());
    if (chat.kind() != ChatTemplateKind::kChatMl) continue;
    accepted.insert(name);
    for (const auto& [id, expected] : entry["cases"].items()) {
      if (!expected.contains("out")) continue;
      const auto messages = Expressible(conversations.at(id));
      if (messages.empty()) continue;
      const auto prompt = chat.Render(messages);
      ASSERT_TRUE(prompt.ok()) << Message(prompt.status());
      EXPECT_EQ(prompt->text, expected["out"].get<std::string>()) << name << " " << id;
      ++compared;
    }
  }
  EXPECT_EQ(accepted, (std::set<std::string>{"MiMo-VL", "Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "npm-qwen3"}));
  EXPECT_GE(compared, 20);
}

}  // namespace
}  // namespace bulkhead::engine
