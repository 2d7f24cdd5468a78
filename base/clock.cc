#include "base/clock.h"

#include <ctime>

#include "base/sys.h"

namespace bulkhead {
namespace {

class KernelClock final : public Clock {
 public:
  [[nodiscard]] Duration Monotonic() const override { return sys::ClockNow(CLOCK_MONOTONIC); }
  [[nodiscard]] Duration Boottime() const override { return sys::ClockNow(CLOCK_BOOTTIME); }
  [[nodiscard]] Duration Wall() const override { return sys::ClockNow(CLOCK_REALTIME); }
};

}  // namespace

const Clock& SystemClock() {
  static const KernelClock clock;
  return clock;
}

}  // namespace bulkhead
