#include "models/ops/ops.h"

#include "absl/strings/str_cat.h"

namespace rivulet {
namespace {

absl::Status InvalidShape(const char* op, const ActivationShape& shape) {
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": shape ", shape.ToString(), " has a size below 1"));
}

}  // namespace

ActivationShape ConvolutionSpec::Output() const {
  return {input.n, out_channels, (input.h + 2 * padding - kernel) / stride + 1,
          (input.w + 2 * padding - kernel) / stride + 1};
}

double ConvolutionSpec::ForwardFlops() const {
  const ActivationShape y = Output();
  return 2.0 * static_cast<double>(input.n * y.pixels()) *
         static_cast<double>(num_weights());
}

absl::Status ConvolutionSpec::Validate() const {
  if (!input.IsValid()) return InvalidShape("convolution", input);
  if (out_channels < 1 || kernel < 1 || stride < 1 || padding < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "convolution: out_channels ", out_channels, ", kernel ", kernel,
        ", stride ", stride, " and padding ", padding,
        ": the first three must be at least 1, the last at least 0"));
  }
  if (input.h + 2 * padding < kernel || input.w + 2 * padding < kernel) {
    return absl::InvalidArgumentError(
        absl::StrCat("convolution: kernel ", kernel, " is larger than input ",
                     input.ToString(), " with padding ", padding));
  }
  return absl::OkStatus();
}

absl::Status NormalizationSpec::Validate() const {
  if (!shape.IsValid()) return InvalidShape("normalization", shape);
  if (kind == Kind::kGroup && (group_size < 1 || shape.c % group_size != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("group norm: group size ", group_size,
                     " does not divide the ", shape.c, " channels"));
  }
  if (!(epsilon > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("normalization: epsilon ", epsilon, " is not positive"));
  }
  return absl::OkStatus();
}

absl::Status LinearSpec::Validate() const {
  if (batch < 1 || in < 1 || out < 1) {
    return absl::InvalidArgumentError(absl::StrCat("linear: batch ", batch,
                                                   ", in ", in, " and out ",
                                                   out, " must be at least 1"));
  }
  return absl::OkStatus();
}

absl::Status ValidatePoolShape(const ActivationShape& shape) {
  return shape.IsValid() ? absl::OkStatus() : InvalidShape("pooling", shape);
}

absl::Status ShortcutSpec::Validate() const {
  if (!input.IsValid()) return InvalidShape("shortcut", input);
  if (out_channels < input.c || (out_channels - input.c) % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shortcut: ", out_channels, " output channels for ", input.c,
        " input channels; the difference must be even "
        "and not negative"));
  }
  return absl::OkStatus();
}

}  // namespace rivulet
