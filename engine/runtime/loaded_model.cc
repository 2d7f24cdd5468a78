#include "engine/runtime/loaded_model.h"

#include <algorithm>
#include <utility>

namespace bulkhead::engine {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kReportEvery = size_t{16} << 20;

absl::Status Report(const LoadProgress& progress, std::string_view phase, uint64_t done, uint64_t total) {
  if (!progress || progress(phase, done, total)) return absl::OkStatus();
  return Error(Reason::kCancelled, "loading was given up");
}

// Touches every page of the map, so that the first tokens do not wait for the disk.
absl::Status Warm(std::span<const std::byte> bytes, const LoadProgress& progress) {
  const size_t step = std::clamp(bytes.size() / 100, kPage, kReportEvery);
  for (size_t start = 0; start < bytes.size(); start += step) {
    const size_t end = std::min(start + step, bytes.size());
    for (size_t at = start; at < end; at += kPage) {
      static_cast<void>(*static_cast<const volatile std::byte*>(bytes.data() + at));
    }
    RETURN_IF_ERROR(Report(progress, "warm", end, bytes.size()));
  }
  return absl::OkStatus();
}

}  // namespace

LoadedModel::LoadedModel(MappedFile map, GgufFile file, Tokenizer tokenizer, std::unique_ptr<const Model> model)
    : map_(std::move(map)),
      file_(std::move(file)),
      tokenizer_(std::move(tokenizer)),
      chat_(ChatTemplate::Detect(file_)),
      sampling_defaults_(DefaultSampling(file_)),
      model_(std::move(model)) {}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadedModel::LoadCold(int fd, const LoadProgress& progress) {
  RETURN_IF_ERROR(Report(progress, "header", 0, 1));
  ASSIGN_OR_RETURN(MappedFile map, MappedFile::Map(fd));
  ASSIGN_OR_RETURN(GgufFile file, GgufFile::Parse(map.bytes()));
  RETURN_IF_ERROR(Report(progress, "tokenizer", 0, 1));
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Create(file));
  RETURN_IF_ERROR(Report(progress, "weights", 0, 1));
  ASSIGN_OR_RETURN(auto model, Model::Load(file));
  if (tokenizer.size() > model->config().vocabulary) {
    return Error(Reason::kModelInvalid, "the tokenizer knows more tokens than the model");
  }
  return std::shared_ptr<const LoadedModel>(
      new LoadedModel(std::move(map), std::move(file), std::move(tokenizer), std::move(model)));
}

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadedModel::Load(int fd, const LoadProgress& progress) {
  ASSIGN_OR_RETURN(auto model, LoadCold(fd, progress));
  RETURN_IF_ERROR(Warm(model->map_.bytes(), progress));
  return model;
}

}  // namespace bulkhead::engine
