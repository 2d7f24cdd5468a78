#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "tools/make_model/options.h"
#include "tools/make_model/write_model.h"

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const auto options = bulkhead::tools::ParseMakeModelOptions(arguments);
  if (!options.ok()) {
    fmt::print(stderr, "make_model: {}\n", bulkhead::Message(options.status()));
    return 2;
  }
  if (options->help) {
    fmt::print("{}", bulkhead::tools::MakeModelHelp());
    return 0;
  }
  const auto size = bulkhead::tools::WriteModelFile(options->spec, options->path);
  if (!size.ok()) {
    fmt::print(stderr, "make_model: {}\n", bulkhead::Message(size.status()));
    return 1;
  }
  fmt::print("{}: {} bytes\n", options->path, *size);
  return 0;
}
