// absl::Status with a Reason in its payload, and the few helpers by which the project makes, reads and passes them on.
// Abseil as Debian builds it has its own string_view; Message() is the one place where the two meet.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/reason.h"

namespace bulkhead {

// A status carrying `reason`; its canonical code is the one of the reason's table row. The message names the thing,
// the value and the limit.
[[nodiscard]] absl::Status Error(Reason reason, std::string_view message);

// The reason `status` carries; kUnspecified for OK, kInternal for an error that carries none.
[[nodiscard]] Reason ReasonOf(const absl::Status& status);

[[nodiscard]] std::string Message(const absl::Status& status);

// "what: strerror(error)", reason kInternal. `error` is a positive errno.
[[nodiscard]] absl::Status ErrnoError(int error, std::string_view what);

}  // namespace bulkhead

#define BULKHEAD_CONCAT_INNER(a, b) a##b
#define BULKHEAD_CONCAT(a, b) BULKHEAD_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                           \
  do {                                                  \
    if (absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                   \
    }                                                   \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_IMPL(BULKHEAD_CONCAT(statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(temp, lhs, expr) \
  auto temp = (expr);                          \
  if (!temp.ok()) return temp.status();        \
  lhs = std::move(temp).value()
