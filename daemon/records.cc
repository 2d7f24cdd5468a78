#include "daemon/records.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "base/numerics_version.h"
#include "base/sys.h"

namespace bulkhead::daemon {
namespace {

constexpr uint64_t kMagic = 0x3153434552484B42;  // "BKHRECS1"
constexpr size_t kHeadBytes = 4096;
constexpr size_t kMinHalf = 4096;
constexpr size_t kMaxHalf = 1 << 30;

struct Head {
  uint64_t magic;
  uint64_t half;
  uint64_t generation;
};
struct RecordHead {
  uint32_t length;
  uint32_t kind;
  uint64_t serial;
  uint64_t checksum;
};
enum Kind : uint32_t { kBegin = 1, kFrame = 2, kForget = 3 };

// Before the serialised request.
struct BeginHead {
  uint32_t uid;
  uint32_t numerics;
  uint64_t device;
  uint64_t inode;
  uint64_t size;
  int64_t modified_ns;
  char inference_id[24];  // padded with zeros
};

size_t Padded(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

uint64_t Mix(uint64_t hash, const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001B3ULL;
  return hash;
}

uint64_t Checksum(uint64_t generation, uint32_t kind, uint64_t serial, std::string_view payload) {
  uint64_t hash = Mix(0xCBF29CE484222325ULL, &generation, sizeof(generation));
  hash = Mix(hash, &kind, sizeof(kind));
  hash = Mix(hash, &serial, sizeof(serial));
  return Mix(hash, payload.data(), payload.size());
}

bool TakeBegin(std::string_view payload, RecordedRequest& out) {
  BeginHead head;
  if (payload.size() < sizeof(head)) return false;
  std::memcpy(&head, payload.data(), sizeof(head));
  out.inference_id.assign(head.inference_id, strnlen(head.inference_id, sizeof(head.inference_id)));
  out.uid = head.uid;
  out.numerics = head.numerics;
  out.file.device = head.device;
  out.file.inode = head.inode;
  out.file.size = head.size;
  out.file.mtime_ns = head.modified_ns;
  payload.remove_prefix(sizeof(head));
  return !out.inference_id.empty() && out.request.ParseFromArray(payload.data(), static_cast<int>(payload.size()));
}

// False where the frame cannot follow what is there.
bool TakeFrame(v1::ServerFrame frame, RecordedRequest& out) {
  uint64_t next = 0;
  if (!out.deltas.empty()) next = out.deltas.back().index() + static_cast<uint64_t>(out.deltas.back().tokens_size());
  switch (frame.kind_case()) {
    case v1::ServerFrame::kStarted:
      out.started = std::move(*frame.mutable_started());
      return true;
    case v1::ServerFrame::kDelta:
      if (frame.delta().index() != next) return false;
      out.deltas.push_back(std::move(*frame.mutable_delta()));
      return true;
    case v1::ServerFrame::kResumed:
      out.resumes = frame.resumed().attempt();
      return true;
    case v1::ServerFrame::kDone:
    case v1::ServerFrame::kError:
      out.terminal = std::move(frame);
      return true;
    default:
      return false;
  }
}

void Take(std::map<uint64_t, RecordedRequest>& requests, const RecordHead& head, std::string_view payload) {
  if (head.kind == kForget) {
    requests.erase(head.serial);
  } else if (head.kind == kBegin) {
    RecordedRequest request;
    request.serial = head.serial;
    if (TakeBegin(payload, request)) requests.insert_or_assign(head.serial, std::move(request));
  } else if (const auto found = requests.find(head.serial); head.kind == kFrame && found != requests.end()) {
    v1::ServerFrame frame;
    const bool right = frame.ParseFromArray(payload.data(), static_cast<int>(payload.size())) &&
                       TakeFrame(std::move(frame), found->second);
    if (!right) requests.erase(found);
  }
}

}  // namespace

absl::StatusOr<RecordedState> ReadRecords(std::string_view bytes) {
  Head head = {};
  if (bytes.size() < kHeadBytes) {
    return Error(Reason::kInvalidRequest, fmt::format("records: {} bytes, {} needed", bytes.size(), kHeadBytes));
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != kMagic) return Error(Reason::kInvalidRequest, "records: written in another format");
  if (head.half < kMinHalf || head.half > kMaxHalf || bytes.size() < kHeadBytes + 2 * head.half) {
    return Error(Reason::kInvalidRequest,
                 fmt::format("records: halves of {} bytes in a file of {}", head.half, bytes.size()));
  }
  const std::string_view log = bytes.substr(kHeadBytes + (head.generation % 2) * head.half, head.half);
  RecordedState state;
  state.generation = head.generation;
  std::map<uint64_t, RecordedRequest> requests;
  while (state.used + sizeof(RecordHead) <= log.size()) {
    RecordHead record;
    std::memcpy(&record, log.data() + state.used, sizeof(record));
    if (record.length == 0 || record.length > log.size() - state.used - sizeof(record)) break;
    const std::string_view payload = log.substr(state.used + sizeof(record), record.length);
    if (record.checksum != Checksum(head.generation, record.kind, record.serial, payload)) break;
    Take(requests, record, payload);
    state.last_serial = std::max(state.last_serial, record.serial);
    state.used += std::min(Padded(sizeof(record) + record.length), log.size() - state.used);
  }
  for (auto& [serial, request] : requests) state.requests.push_back(std::move(request));
  return state;
}

RecordStore::RecordStore(UniqueFd fd, uint8_t* data, size_t half) : fd_(std::move(fd)), data_(data), half_(half) {}

RecordStore::~RecordStore() { sys::Munmap(data_, size()); }

size_t RecordStore::size() const { return kHeadBytes + 2 * half_; }

uint64_t RecordStore::generation() const { return reinterpret_cast<const Head*>(data_)->generation; }

absl::StatusOr<std::unique_ptr<RecordStore>> RecordStore::Create(size_t half_bytes) {
  const int fd = sys::MemfdCreate("bulkhead-records", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return ErrnoError(-fd, "records: memfd_create");
  UniqueFd owned(fd);
  const size_t size = kHeadBytes + 2 * half_bytes;
  if (const int error = sys::Ftruncate(fd, static_cast<off_t>(size)); error < 0) {
    return ErrnoError(-error, "records: ftruncate");
  }
  // Nobody who holds it can make a page of it vanish under the map.
  (void)sys::Fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* data = nullptr;
  if (const int error = sys::Mmap(&data, nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); error < 0) {
    return ErrnoError(-error, "records: mmap");
  }
  auto* head = static_cast<Head*>(data);
  head->half = half_bytes;
  std::atomic_ref(head->magic).store(kMagic, std::memory_order_release);
  return std::unique_ptr<RecordStore>(new RecordStore(std::move(owned), static_cast<uint8_t*>(data), half_bytes));
}

absl::StatusOr<std::unique_ptr<RecordStore>> RecordStore::Adopt(UniqueFd fd, RecordedState* state) {
  struct stat info = {};
  if (const int error = sys::Fstat(fd.get(), &info); error < 0) return ErrnoError(-error, "records: fstat");
  const int seals = sys::Fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return Error(Reason::kInvalidRequest, "records: not a sealed memfd");
  const auto size = static_cast<size_t>(info.st_size);
  if (size < kHeadBytes + 2 * kMinHalf || size > kHeadBytes + 2 * kMaxHalf) {
    return Error(Reason::kInvalidRequest, fmt::format("records: {} bytes", size));
  }
  void* data = nullptr;
  if (const int error = sys::Mmap(&data, nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0); error < 0) {
    return ErrnoError(-error, "records: mmap");
  }
  auto read = ReadRecords({static_cast<const char*>(data), size});
  if (!read.ok()) {
    sys::Munmap(data, size);
    return read.status();
  }
  const size_t half = static_cast<const Head*>(data)->half;
  if (size != kHeadBytes + 2 * half) {
    sys::Munmap(data, size);
    return Error(Reason::kInvalidRequest, fmt::format("records: halves of {} bytes in a file of {}", half, size));
  }
  auto store = std::unique_ptr<RecordStore>(new RecordStore(std::move(fd), static_cast<uint8_t*>(data), half));
  store->used_ = read->used;
  store->last_serial_ = read->last_serial;
  *state = *std::move(read);
  return store;
}

uint64_t RecordStore::Begin(const std::string& inference_id, uid_t uid, const admission::FileIdentity& file,
                            const v1::GenerateRequest& request) {
  BeginHead head = {};
  if (inference_id.size() > sizeof(head.inference_id)) return 0;
  std::memcpy(head.inference_id, inference_id.data(), inference_id.size());
  head.uid = uid;
  head.numerics = kNumericsVersion;
  head.device = file.device;
  head.inode = file.inode;
  head.size = file.size;
  head.modified_ns = file.mtime_ns;
  std::string payload(reinterpret_cast<const char*>(&head), sizeof(head));
  if (!request.AppendToString(&payload)) return 0;
  const uint64_t serial = ++last_serial_;
  return Write(kBegin, serial, payload) ? serial : 0;
}

void RecordStore::Append(uint64_t serial, const v1::ServerFrame& frame) {
  if (serial == 0) return;
  // A request of which a piece is missing must not come back.
  if (!Write(kFrame, serial, frame.SerializeAsString())) Forget(serial);
}

void RecordStore::Forget(uint64_t serial) {
  if (serial != 0) Write(kForget, serial, " ");
}

bool RecordStore::Write(uint32_t kind, uint64_t serial, std::string_view payload) {
  const size_t needed = Padded(sizeof(RecordHead) + payload.size());
  // One record's room is kept for the last word on any request.
  const size_t reserve = kind == kForget ? 0 : 4096;
  if (payload.empty() || needed > half_ / 2) return false;
  if (used_ + needed + reserve > half_) Compact();
  if (used_ + needed + reserve > half_) return false;
  uint8_t* at = data_ + kHeadBytes + (generation() % 2) * half_ + used_;
  // What lay behind may look like a length.
  if (used_ + needed + sizeof(RecordHead) <= half_) {
    std::atomic_ref(reinterpret_cast<RecordHead*>(at + needed)->length).store(0, std::memory_order_relaxed);
  }
  auto* head = reinterpret_cast<RecordHead*>(at);
  std::memcpy(at + sizeof(RecordHead), payload.data(), payload.size());
  head->kind = kind;
  head->serial = serial;
  head->checksum = Checksum(generation(), kind, serial, payload);
  std::atomic_ref(head->length).store(static_cast<uint32_t>(payload.size()), std::memory_order_release);
  used_ += needed;
  return true;
}

void RecordStore::Compact() {
  const uint64_t now = generation();
  const std::string_view log(reinterpret_cast<const char*>(data_ + kHeadBytes + (now % 2) * half_), used_);
  uint8_t* other = data_ + kHeadBytes + ((now + 1) % 2) * half_;
  const auto state = ReadRecords({reinterpret_cast<const char*>(data_), size()});
  if (!state.ok()) return;
  // Those that have ended are kept for a client that missed the end; under pressure the running ones matter more.
  const bool pressed = used_ - std::min(used_, compacted_) < half_ / 4;
  std::vector<uint64_t> live;
  for (const RecordedRequest& request : state->requests) {
    if (!pressed || !request.terminal) live.push_back(request.serial);
  }
  size_t written = 0;
  for (size_t at = 0; at + sizeof(RecordHead) <= used_;) {
    RecordHead head;
    std::memcpy(&head, log.data() + at, sizeof(head));
    const std::string_view payload = log.substr(at + sizeof(head), head.length);
    at += Padded(sizeof(head) + head.length);
    if (!std::binary_search(live.begin(), live.end(), head.serial)) continue;
    head.checksum = Checksum(now + 1, head.kind, head.serial, payload);
    std::memcpy(other + written, &head, sizeof(head));
    std::memcpy(other + written + sizeof(head), payload.data(), payload.size());
    written += Padded(sizeof(head) + head.length);
  }
  if (written + sizeof(RecordHead) <= half_) std::memset(other + written, 0, sizeof(RecordHead));
  std::atomic_ref(reinterpret_cast<Head*>(data_)->generation).store(now + 1, std::memory_order_release);
  used_ = written;
  compacted_ = written;
}

}  // namespace bulkhead::daemon
