// The only place that includes toml++, which takes seconds to compile.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// It asserts what it then reports as an error ("[~section]"): a mistake in a file must not end a debug build.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/impl/forward_declarations.h>
// In 3.3 the classification of characters takes most of U+FB26 to U+FEFE for a place it cannot reach, which is
// undefined behaviour for a file that holds one where white space may stand. They are in none of its classes.
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()

#include <fcntl.h>
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "base/fd.h"
#include "base/sys.h"
#include "daemon/config.h"
#include "daemon/config_keys.h"

namespace bulkhead::daemon {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status At(const std::string& file, uint32_t line, std::string_view message) {
  return Error(Reason::kInvalidRequest, fmt::format("{}:{}: {}", file, line, message));
}

// A scalar as the text that the key's own parser reads; the types that no key has are refused here.
absl::StatusOr<std::string> ScalarText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  return Error(Reason::kInvalidRequest, "takes a string or a whole number");
}

absl::StatusOr<Setting> ReadNode(const std::string& name, const toml::node& node, const std::string& file) {
  const uint32_t line = node.source().begin.line;
  Setting setting{name, {}, false, fmt::format("{}:{}", file, line)};
  if (const toml::array* array = node.as_array()) {
    setting.list = true;
    for (const toml::node& element : *array) {
      if (!element.is_string()) return At(file, line, fmt::format("{}: takes a list of strings", name));
      setting.values.push_back(element.as_string()->get());
    }
    return setting;
  }
  auto text = ScalarText(node);
  if (!text.ok()) return At(file, line, fmt::format("{}: {}", name, Message(text.status())));
  setting.values.push_back(*std::move(text));
  return setting;
}

absl::Status ReadSection(const std::string& section, const toml::table& table, const std::string& file,
                         std::vector<Setting>& out) {
  for (const auto& [key, node] : table) {
    const std::string name = fmt::format("{}.{}", section, key.str());
    if (FindConfigKey(name) == nullptr) return At(file, key.source().begin.line, fmt::format("unknown key {}", name));
    ASSIGN_OR_RETURN(Setting setting, ReadNode(name, node, file));
    out.push_back(std::move(setting));
  }
  return absl::OkStatus();
}

bool SectionExists(std::string_view section) {
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.name.starts_with(section) && key.name.substr(section.size()).starts_with('.')) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<Setting>> ParseConfigText(std::string_view text, const std::string& file_name) {
  const toml::parse_result result = toml::parse(text, file_name);
  if (!result) return At(file_name, result.error().source().begin.line, result.error().description());
  std::vector<Setting> settings;
  for (const auto& [key, node] : result.table()) {
    const toml::table* section = node.as_table();
    if (section == nullptr || !SectionExists(key.str())) {
      return At(file_name, key.source().begin.line,
                fmt::format("unknown {} {}", section == nullptr ? "key" : "section", key.str()));
    }
    RETURN_IF_ERROR(ReadSection(std::string(key.str()), *section, file_name, settings));
  }
  return settings;
}

absl::StatusOr<std::vector<Setting>> ReadConfigFile(const std::string& path) {
  const UniqueFd fd(sys::Open(path.c_str(), O_RDONLY));
  if (!fd.valid()) return ErrnoError(-fd.get(), path);
  std::string text;
  char buffer[16 << 10];
  while (true) {
    const ssize_t got = sys::Read(fd.get(), buffer, sizeof(buffer));
    if (got == -EINTR) continue;
    if (got < 0) return ErrnoError(static_cast<int>(-got), path);
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxFileBytes) {
      return Error(Reason::kInvalidRequest, fmt::format("{}: larger than {} bytes", path, kMaxFileBytes));
    }
  }
  return ParseConfigText(text, path);
}

absl::StatusOr<std::vector<Setting>> ReadConfD(const std::string& file) {
  const size_t slash = file.rfind('/');
  const std::string directory = (slash == std::string::npos ? std::string() : file.substr(0, slash + 1)) + "conf.d";
  const UniqueFd fd(sys::Open(directory.c_str(), O_RDONLY | O_DIRECTORY));
  if (fd.get() == -ENOENT) return std::vector<Setting>();
  if (!fd.valid()) return ErrnoError(-fd.get(), directory);
  std::vector<std::string> names;
  if (const int error = sys::ListDirectory(fd.get(), &names); error < 0) return ErrnoError(-error, directory);
  std::sort(names.begin(), names.end());
  std::vector<Setting> settings;
  for (const std::string& name : names) {
    if (!name.ends_with(".toml") || name.starts_with('.')) continue;
    ASSIGN_OR_RETURN(std::vector<Setting> piece, ReadConfigFile(fmt::format("{}/{}", directory, name)));
    for (Setting& setting : piece) {
      setting.source = kFromConfD;
      settings.push_back(std::move(setting));
    }
  }
  return settings;
}

}  // namespace bulkhead::daemon
