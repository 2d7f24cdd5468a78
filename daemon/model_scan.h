// Which model files the configured directories hold. Blocking; any thread; nothing is kept between calls.
//
// A model's name is its file's name without ".gguf". Directories are walked recursively, symbolic links followed, each
// directory visited once however many links lead to it. Hidden names are left out: downloads in progress often are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace bulkhead::daemon {

struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_unix_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

struct FoundModel {
  std::string name;
  std::string path;
  FileIdentity identity;
  std::string problem;  // why it cannot be used; empty if it can
};

struct ModelScan {
  std::vector<FoundModel> models;     // ascending by name
  std::vector<std::string> problems;  // of directories and of names that cannot be shown
  [[nodiscard]] const FoundModel* Find(const std::string& name) const;
};

ModelScan ScanModels(const std::vector<std::string>& directories);

struct OpenedFile {
  UniqueFd fd;
  FileIdentity identity;
};
// Opens a model read-only. kModelNotFound where there is none, kModelInvalid where it is no regular file, kInternal
// names errno.
absl::StatusOr<OpenedFile> OpenModelFile(const std::string& path);

// kInvalidRequest unless `fd` is a regular file opened for reading only; then its identity.
absl::StatusOr<FileIdentity> CheckPassedFile(int fd);

// "…-00001-of-00003" and the like.
bool IsSplitName(std::string_view stem);
// UTF-8 without control characters, at most 4096 bytes: fit for messages and logs.
bool IsShowableName(std::string_view name);

}  // namespace bulkhead::daemon
