#include "daemon/model_scan.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr int kMaxDepth = 32;
constexpr size_t kMaxEntries = 100'000;

FileIdentity IdentityOf(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
          static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::string ErrnoText(int error) { return Message(ErrnoError(error, "")).substr(2); }

class Walk {
 public:
  void Directory(const std::string& path, int depth) {
    const UniqueFd directory(sys::Open(path.c_str(), O_RDONLY | O_DIRECTORY));
    if (!directory.valid()) return Problem(path, ErrnoText(-directory.get()));
    struct stat info = {};
    if (sys::Fstat(directory.get(), &info) < 0) return;
    if (!visited_.insert({info.st_dev, info.st_ino}).second) return;
    if (depth > kMaxDepth) return Problem(path, fmt::format("deeper than {} directories", kMaxDepth));
    std::vector<std::string> names;
    if (const int error = sys::ListDirectory(directory.get(), &names); error < 0) {
      return Problem(path, ErrnoText(-error));
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) Entry(directory.get(), path, name, depth);
  }

  ModelScan Finish() {
    for (auto& [name, model] : models_) scan_.models.push_back(std::move(model));
    return std::move(scan_);
  }

 private:
  void Problem(const std::string& path, const std::string& what) {
    scan_.problems.push_back(
        fmt::format("{}: {}", IsShowableName(path) ? path : "(a name that cannot be shown)", what));
  }

  void Entry(int directory, const std::string& parent, const std::string& name, int depth) {
    if (name.starts_with('.') || ++entries_ > kMaxEntries) {
      if (entries_ == kMaxEntries + 1)
        Problem(parent, fmt::format("more than {} entries; the rest is left out", kMaxEntries));
      return;
    }
    // O_PATH: looking at a device or a pipe must not open it.
    const UniqueFd entry(sys::OpenAt(directory, name.c_str(), O_PATH));
    struct stat info = {};
    if (!entry.valid() || sys::Fstat(entry.get(), &info) < 0) {
      if (name.ends_with(kSuffix)) Problem(parent + "/" + name, ErrnoText(-entry.get()));
      return;
    }
    const std::string path = parent + "/" + name;
    if (S_ISDIR(info.st_mode)) return Directory(path, depth + 1);
    if (S_ISREG(info.st_mode) && name.ends_with(kSuffix)) File(directory, path, name, info);
  }

  void File(int directory, const std::string& path, const std::string& name, const struct stat& info) {
    FoundModel found{name.substr(0, name.size() - kSuffix.size()), path, IdentityOf(info), ""};
    if (!IsShowableName(found.name) || !IsShowableName(path)) {
      return Problem(path, "the name is not UTF-8, holds control characters or is longer than the limit");
    }
    if (IsSplitName(found.name)) {
      found.problem = "one part of a split model; merge the parts into one file first";
    } else if (const UniqueFd file(sys::OpenAt(directory, name.c_str(), O_RDONLY | O_NONBLOCK)); !file.valid()) {
      found.problem = ErrnoText(-file.get());
    }
    Keep(std::move(found));
  }

  void Keep(FoundModel found) {
    const auto [place, added] = models_.try_emplace(found.name, found);
    // The same file under two paths is one model.
    if (added || place->second.identity == found.identity) return;
    place->second.problem = fmt::format("two files have this name: {} and {}", place->second.path, found.path);
    scan_.problems.push_back(fmt::format("{}: {}", found.name, place->second.problem));
  }

  ModelScan scan_;
  std::map<std::string, FoundModel> models_;
  std::set<std::pair<uint64_t, uint64_t>> visited_;
  size_t entries_ = 0;
};

bool AllDigits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Length of the well-formed UTF-8 character at the front of `text`; 0 where there is none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xF0 && byte(1) < 0x90);
  const bool beyond = (byte(0) == 0xED && byte(1) > 0x9F) || (byte(0) == 0xF4 && byte(1) > 0x8F);
  return overlong || beyond ? 0 : length;
}

}  // namespace

const FoundModel* ModelScan::Find(const std::string& name) const {
  const auto place = std::lower_bound(models.begin(), models.end(), name,
                                      [](const FoundModel& model, const std::string& key) { return model.name < key; });
  return place != models.end() && place->name == name ? &*place : nullptr;
}

ModelScan ScanModels(const std::vector<std::string>& directories) {
  Walk walk;
  for (const std::string& directory : directories) walk.Directory(directory, 0);
  return walk.Finish();
}

absl::StatusOr<OpenedFile> OpenModelFile(const std::string& path) {
  UniqueFd fd(sys::Open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (fd.get() == -ENOENT) return Error(Reason::kModelNotFound, fmt::format("{}: the file is gone", path));
  if (!fd.valid()) return ErrnoError(-fd.get(), path);
  struct stat info = {};
  if (const int error = sys::Fstat(fd.get(), &info); error < 0) return ErrnoError(-error, path);
  if (!S_ISREG(info.st_mode)) return Error(Reason::kModelInvalid, fmt::format("{}: not a regular file", path));
  return OpenedFile{std::move(fd), IdentityOf(info)};
}

absl::StatusOr<FileIdentity> CheckPassedFile(int fd) {
  struct stat info = {};
  if (const int error = sys::Fstat(fd, &info); error < 0) return ErrnoError(-error, "passed descriptor");
  if (!S_ISREG(info.st_mode)) return Error(Reason::kInvalidRequest, "passed descriptor: not a regular file");
  const int flags = sys::Fcntl(fd, F_GETFL);
  if (flags < 0) return ErrnoError(-flags, "passed descriptor");
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH) != 0) {
    return Error(Reason::kInvalidRequest, "passed descriptor: not opened for reading only");
  }
  return IdentityOf(info);
}

bool IsSplitName(std::string_view stem) {
  constexpr size_t kTail = sizeof("-00001-of-00003") - 1;
  if (stem.size() < kTail) return false;
  const std::string_view tail = stem.substr(stem.size() - kTail);
  return tail[0] == '-' && AllDigits(tail.substr(1, 5)) && tail.substr(6, 4) == "-of-" && AllDigits(tail.substr(10));
}

bool IsShowableName(std::string_view name) {
  constexpr size_t kMaxBytes = 4096;
  if (name.empty() || name.size() > kMaxBytes) return false;
  while (!name.empty()) {
    const size_t length = CharacterLength(name);
    const auto first = static_cast<unsigned char>(name[0]);
    if (length == 0 || first < 0x20 || first == 0x7F) return false;
    name.remove_prefix(length);
  }
  return true;
}

}  // namespace bulkhead::daemon
