// The AVX2 tier (AVX2, FMA, F16C). Built with flags of its own: see CMakeLists.txt and kernels.h.
#include "kernels/x86/lanes_avx2.h"

// The operations are written in the lanes above.
#include "kernels/x86/avx2_blocks.h"
#include "kernels/x86/table.h"

namespace bulkhead::kernels {

extern constinit const KernelTable kAvx2Kernels = MakeTable("avx2");

}  // namespace bulkhead::kernels
