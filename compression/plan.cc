#include "compression/plan.h"

#include "absl/strings/str_format.h"
#include "compression/quantizer.h"

namespace rivulet {

absl::Status TensorPlan::Validate() const {
  if (!(density > 0 && density <= 1)) {  // refuses NaN too
    return absl::InvalidArgumentError(absl::StrFormat(
        "plan's density is %g; allowed: above 0, up to 1", density));
  }
  if (!IsValueBits(value_bits)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "plan's value_bits is %d; allowed: 8, 16, 32", value_bits));
  }
  return absl::OkStatus();
}

}  // namespace rivulet
