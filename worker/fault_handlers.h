// Words on stderr for deaths that would otherwise be silent; the signal itself still ends the process, so that the
// supervisor can tell what it was.
#pragma once

namespace bulkhead::worker {

// SIGBUS: the mapped file changed. SIGILL: an instruction this processor lacks. Also ignores SIGPIPE. Call before
// threads are started.
void InstallFaultHandlers();

}  // namespace bulkhead::worker
