// The AVX-512 tier (F, BW, DQ, VL, VNNI). Built with flags of its own: see CMakeLists.txt and kernels.h.
#include "kernels/x86/lanes_avx512.h"

// The operations are written in the lanes above.
#include "kernels/x86/avx512_blocks.h"
#include "kernels/x86/table.h"

namespace bulkhead::kernels {

extern constinit const KernelTable kAvx512Kernels = MakeTable("avx512");

}  // namespace bulkhead::kernels
