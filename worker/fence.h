// What a worker gives up before it reads a byte from outside, in the order in which main calls it (DESIGN section 4).
// Single-threaded, and undone by nothing. Not for sanitizer builds, whose runtime needs what is given up.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace bulkhead::worker {

// True where this build cannot be fenced; `why` for people.
bool FenceUnavailable(std::string* why);

// What `ps` and `top` call this process: it was started by the number of a descriptor, which says nothing.
void NameProcess();

// The kernel kills this process when the thread that started it ends; one that has ended already shows as a hang-up on
// `parent_fd` (the control socket, or the pipe behind stdout), and then this exits. Without a descriptor: -1.
void DieWithParent(int parent_fd);

// Out-of-memory score up, no new privileges, and no rights on any path (nor TCP ports and foreign processes, where the
// kernel knows these). `notes` gets a sentence for what the kernel does not offer. kInternal where it refuses what it
// offers.
absl::Status GiveUpPaths(std::vector<std::string>* notes);

// Closes this process's /proc files to others of its uid, and switches core dumps off: memory holds prompts.
absl::Status DenyInspection();

}  // namespace bulkhead::worker
