// Propagation of absl::Status: RV_RETURN_IF_ERROR and RV_ASSIGN_OR_RETURN.
//
//   absl::Status Load(const std::string& path) {
//     RV_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
//     RV_RETURN_IF_ERROR(Parse(bytes));
//     return absl::OkStatus();
//   }

#ifndef RIVULET_COMMON_BASE_STATUS_MACROS_H_
#define RIVULET_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// `status` with `context` and a colon before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status,
                             absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(context, ": ", status.message()));
}

}  // namespace rivulet

#define RV_RETURN_IF_ERROR(expr)                              \
  do {                                                        \
    if (absl::Status rv_status_ = (expr); !rv_status_.ok()) { \
      return rv_status_;                                      \
    }                                                         \
  } while (false)

#define RV_STATUS_CONCAT_INNER_(a, b) a##b
#define RV_STATUS_CONCAT_(a, b) RV_STATUS_CONCAT_INNER_(a, b)

// `lhs` may be a declaration; it must not contain commas outside parentheses.
#define RV_ASSIGN_OR_RETURN(lhs, expr)                                      \
  RV_ASSIGN_OR_RETURN_IMPL_(RV_STATUS_CONCAT_(rv_statusor_, __LINE__), lhs, \
                            expr)

#define RV_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                              \
  if (!statusor.ok()) return statusor.status();        \
  lhs = *std::move(statusor)

#endif  // RIVULET_COMMON_BASE_STATUS_MACROS_H_
