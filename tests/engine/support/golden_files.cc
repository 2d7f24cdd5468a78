#include "tests/engine/support/golden_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "base/sys.h"

namespace bulkhead::tests {

std::optional<std::string> SharedGolden() {
  if (const char* path = std::getenv("BULKHEAD_SHARED_GOLDEN"); path != nullptr) return path;
  // A worktree may stand one folder deeper than a clone.
  for (const char* up : {"/../shared/golden", "/../../shared/golden"}) {
    const std::string path = std::string(BULKHEAD_SOURCE_DIR) + up;
    if (std::filesystem::is_directory(path)) return path;
  }
  return std::nullopt;
}

std::string CommittedGolden(const std::string& name) {
  return std::string(BULKHEAD_SOURCE_DIR) + "/tests/golden/data/" + name;
}

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << path;
  return json;
}

std::unique_ptr<OpenGguf> OpenGgufFile(const std::string& path) {
  const UniqueFd fd(sys::Open(path.c_str(), O_RDONLY));
  EXPECT_TRUE(fd.valid()) << path;
  if (!fd.valid()) return nullptr;
  auto map = MappedFile::Map(fd.get());
  EXPECT_TRUE(map.ok()) << Message(map.status());
  if (!map.ok()) return nullptr;
  auto file = engine::GgufFile::Parse(map->bytes());
  EXPECT_TRUE(file.ok()) << path << ": " << Message(file.status());
  if (!file.ok()) return nullptr;
  return std::make_unique<OpenGguf>(OpenGguf{*std::move(map), *std::move(file)});
}

}  // namespace bulkhead::tests
