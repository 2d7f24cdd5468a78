#include "tests/simulation/faults.h"

#include <uv.h>

#include <cstring>
#include <deque>
#include <map>

#include "base/sys.h"
#include "tests/sim/rng.h"

namespace bulkhead::sim {
namespace {

struct Failure {
  int error = 0;
  int left = 0;
};
std::map<std::string, Failure> g_failures;
size_t g_most = 0;
Rng g_cuts{1};
Rng g_random{1};

struct Work {
  uv_work_t* request;
  uv_work_cb work;
  uv_after_work_cb after;
};
std::deque<Work> g_work;

int FaultOf(const char* call) {
  if (g_failures.empty()) return 0;
  const auto found = g_failures.find(call);
  if (found == g_failures.end()) return 0;
  const int error = found->second.error;
  if (--found->second.left == 0) g_failures.erase(found);
  return error;
}

}  // namespace

void FailCalls(const std::string& call, int error, int count) { g_failures[call] = {error, count}; }
void ForgetFailures() { g_failures.clear(); }

void CutTransfers(size_t most, uint64_t seed) {
  g_most = most;
  g_cuts = Rng(seed);
}

void SeedRandom(uint64_t seed) { g_random = Rng(seed); }

void InstallHooks() {
  sys::SetFaultHook(FaultOf);
  sys::SetTransferHook([](const char*, size_t size) { return g_most == 0 ? size : 1 + g_cuts.Below(g_most); });
  sys::SetRandomHook([](void* data, size_t size) {
    for (size_t i = 0; i < size; ++i)
      static_cast<unsigned char*>(data)[i] = static_cast<unsigned char>(g_random.Next());
  });
}

void QueueWork(uv_work_t* request, uv_work_cb work, uv_after_work_cb after) {
  g_work.push_back({request, work, after});
}

bool DoOnePieceOfWork() {
  if (g_work.empty()) return false;
  const Work next = g_work.front();
  g_work.pop_front();
  next.work(next.request);
  next.after(next.request, 0);
  return true;
}

}  // namespace bulkhead::sim

// In place of libuv's: the simulation has no threads, and decides itself when a disk is done.
extern "C" int uv_queue_work(uv_loop_t* loop, uv_work_t* request, uv_work_cb work, uv_after_work_cb after) {
  request->loop = loop;
  bulkhead::sim::QueueWork(request, work, after);
  return 0;
}
