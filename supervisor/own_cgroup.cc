#include "supervisor/own_cgroup.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>
#include <vector>

#include "base/sys.h"

namespace bulkhead::supervisor {
namespace {

// A cgroup v1 without a limit says the largest page-aligned number; nothing real comes near this.
constexpr uint64_t kUnlimited = uint64_t{1} << 60;
constexpr size_t kLimitBytes = 64;

// Calls `use` with each piece of `text` between `separator`s until it returns true.
bool AnyPiece(std::string_view text, char separator, const std::function<bool(std::string_view)>& use) {
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (use(text.substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  AnyPiece(text, separator, [&](std::string_view piece) {
    pieces.push_back(piece);
    return false;
  });
  return pieces;
}

bool Lists(std::string_view list, std::string_view word) {
  return AnyPiece(list, ',', [&](std::string_view piece) { return piece == word; });
}

struct Mount {
  std::string_view root;
  std::string_view point;
};

// proc(5): id parent device root point options [optional...] - type source super-options
std::optional<Mount> FindMount(std::string_view controller, std::string_view mounts) {
  std::optional<Mount> found;
  AnyPiece(mounts, '\n', [&](std::string_view line) {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) return false;
    const auto head = Split(line.substr(0, dash), ' ');
    const auto tail = Split(line.substr(dash + 3), ' ');
    if (head.size() < 6 || tail.size() < 3) return false;
    const bool wanted = controller.empty() ? tail[0] == "cgroup2" : tail[0] == "cgroup" && Lists(tail[2], controller);
    if (wanted) found = Mount{head[3], head[4]};
    return wanted;
  });
  return found;
}

std::optional<std::string_view> FindGroup(std::string_view controller, std::string_view groups) {
  std::optional<std::string_view> found;
  AnyPiece(groups, '\n', [&](std::string_view line) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) return false;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool wanted = controller.empty() ? controllers.empty() : Lists(controllers, controller);
    if (wanted) found = line.substr(second + 1);
    return wanted;
  });
  return found;
}

// Calls `use` with our group's directory and each above it.
void ForEachLevel(const CgroupPlace& place, const std::function<void(const std::string&)>& use) {
  std::string group = place.group;
  while (true) {
    use(place.mount + group);
    if (group.empty()) return;
    group.resize(group.rfind('/'));
  }
}

std::optional<uint64_t> ReadLimit(const std::string& path) {
  const std::optional<uint64_t> limit = ParseNumber(ReadTextFile(path, kLimitBytes));
  return limit.has_value() && *limit < kUnlimited ? limit : std::nullopt;
}

std::optional<admission::CpuQuota> ReadQuota(const std::string& directory, bool v2) {
  const std::string quota = ReadTextFile(directory + (v2 ? "/cpu.max" : "/cpu.cfs_quota_us"), kLimitBytes);
  // v2 says "max", v1 says -1 where there is none.
  const auto microseconds = ParseNumber(quota);
  if (!microseconds.has_value()) return std::nullopt;
  const size_t blank = std::min(quota.find(' '), quota.size());
  const auto period =
      ParseNumber(v2 ? quota.substr(blank) : ReadTextFile(directory + "/cpu.cfs_period_us", kLimitBytes));
  if (!period.has_value() || *period == 0) return std::nullopt;
  return admission::CpuQuota{*microseconds, *period};
}

}  // namespace

std::optional<uint64_t> ParseNumber(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  uint64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view key) {
  std::optional<uint64_t> number;
  AnyPiece(text, '\n', [&](std::string_view line) {
    if (line.substr(0, key.size()) != key) return false;
    number = ParseNumber(line.substr(key.size()));
    return true;
  });
  return number;
}

std::string ReadTextFile(const std::string& path, size_t limit) {
  std::string text(limit, '\0');
  const ssize_t got = sys::ReadSmallFile(AT_FDCWD, path.c_str(), text);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

std::optional<CgroupPlace> FindCgroup(std::string_view controller, std::string_view mounts, std::string_view groups) {
  const auto mount = FindMount(controller, mounts);
  const auto group = FindGroup(controller, groups);
  if (!mount.has_value() || !group.has_value()) return std::nullopt;
  CgroupPlace place{std::string(mount->point), std::string(*group), controller.empty()};
  // Without a namespace of its own a container sees its group by the host's name, and mounted as the root.
  if (mount->root != "/" && place.group.starts_with(mount->root)) place.group.erase(0, mount->root.size());
  if (place.group == "/") place.group.clear();
  // One that lies above what is mounted cannot be named.
  if (!place.group.empty() && (place.group.front() != '/' || place.group.starts_with("/.."))) place.group.clear();
  return place;
}

std::optional<CgroupPlace> OwnCgroup(std::string_view controller) {
  return FindCgroup(controller, ReadTextFile("/proc/self/mountinfo", 256 << 10),
                    ReadTextFile("/proc/self/cgroup", 16 << 10));
}

std::optional<uint64_t> OwnMemoryLimit() {
  std::optional<uint64_t> tightest;
  for (const char* const controller : {"", "memory"}) {
    const auto place = OwnCgroup(controller);
    if (!place.has_value()) continue;
    ForEachLevel(*place, [&](const std::string& directory) {
      const auto limit = ReadLimit(directory + (place->v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      if (limit.has_value()) tightest = std::min(tightest.value_or(*limit), *limit);
    });
  }
  return tightest;
}

std::optional<admission::CpuQuota> OwnCpuQuota() {
  std::optional<admission::CpuQuota> tightest;
  const auto is_tighter = [&](const admission::CpuQuota& quota) {
    const auto share = [](const admission::CpuQuota& q) {
      return static_cast<double>(q.quota_us) / static_cast<double>(q.period_us);
    };
    return !tightest.has_value() || share(quota) < share(*tightest);
  };
  for (const char* const controller : {"", "cpu"}) {
    const auto place = OwnCgroup(controller);
    if (!place.has_value()) continue;
    ForEachLevel(*place, [&](const std::string& directory) {
      const auto quota = ReadQuota(directory, place->v2);
      if (quota.has_value() && is_tighter(*quota)) tightest = quota;
    });
  }
  return tightest;
}

}  // namespace bulkhead::supervisor
