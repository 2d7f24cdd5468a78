// System calls that fail or move less than they were asked to, and the pool of threads that is none. Global, as the
// hooks of base/sys.h are; single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bulkhead::sim {

// Fails the next `count` calls of that wrapper.
void FailCalls(const std::string& call, int error, int count);
void ForgetFailures();
// Cuts transfers to 1 to `most` bytes; 0 = whole again.
void CutTransfers(size_t most, uint64_t seed);
// What GetRandom gives from now on.
void SeedRandom(uint64_t seed);
void InstallHooks();

// Work handed to uv_queue_work: done, and its end told, one piece at a time. False where there is none.
bool DoOnePieceOfWork();

}  // namespace bulkhead::sim
