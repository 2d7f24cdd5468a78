// Reference outputs of a folder with manifest.json, models/ and data/ (see shared/golden/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bulkhead::engine {

struct GoldenCase {
  std::string prompt;
  std::vector<int32_t> prompt_ids;
  // Of llama.cpp on the file dequantised to F32, with F32 KV and F32 arithmetic.
  std::vector<int32_t> greedy_ids;
  std::vector<double> greedy_margin;  // gap between the two best logits at each step
  std::vector<float> logits_last;     // after the prompt
  std::vector<float> logits_after;    // after all greedy ids
  // The error of llama.cpp's own defaults against that.
  double native_rms = 0;
};

struct GoldenModel {
  std::string name;  // the file's stem
  std::string path;
  std::vector<GoldenCase> cases;
};

// Models whose name begins with one of `prefixes`. Empty where the folder or the file is missing.
std::vector<GoldenModel> LoadGoldenSet(const std::string& folder, const std::vector<std::string>& prefixes);

// Compiled in: tests/golden/data, and shared/golden/`part` beside the repository (may not exist).
std::string CommittedGoldenFolder();
std::string SharedGoldenFolder(const std::string& part = "core");

}  // namespace bulkhead::engine
