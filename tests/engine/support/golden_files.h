// Where the reference outputs stand, and files of them read whole.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "engine/gguf/gguf.h"

namespace bulkhead::tests {

// The folder shared/golden beside the project's tree, or that of $BULKHEAD_SHARED_GOLDEN. A test that needs it skips
// with
// "[no-shared-golden]" where there is none.
std::optional<std::string> SharedGolden();

// A file under tests/golden/data.
std::string CommittedGolden(const std::string& name);

// Fails the test where the file cannot be read.
nlohmann::json ReadJson(const std::string& path);

// A GGUF file, mapped and parsed; nullptr (and a failed test) where that did not work.
struct OpenGguf {
  MappedFile map;
  engine::GgufFile file;
};
std::unique_ptr<OpenGguf> OpenGgufFile(const std::string& path);

}  // namespace bulkhead::tests
