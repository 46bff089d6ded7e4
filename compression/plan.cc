#include "compression/plan.h"

#include "absl/strings/str_format.h"
#include "compression/quantizer.h"

namespace rivulet {

absl::Status TensorPlan::Validate() const {
  if (!(density >= 0 && density <= 1)) {  // refuses NaN too
    return absl::InvalidArgumentError(
        absl::StrFormat("plan's density is %g; allowed: 0 to 1", density));
  }
  if (dense() && !IsLinearBits(value_bits)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("plan's value_bits is %d; allowed in a tensor that is "
                        "sent whole: 4, 8, "
                        "16, 32",
                        value_bits));
  }
  if (!IsValueBits(value_bits)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "plan's value_bits is %d; allowed: 1, 2, 3, 4, 8, 16, 32", value_bits));
  }
  return absl::OkStatus();
}

}  // namespace rivulet
