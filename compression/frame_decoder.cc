// Decoding of bytes from outside: nothing is believed. Lengths are compared
// with what is left of the body before anything is allocated for them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "compression/bit_io.h"
#include "compression/frame.h"
#include "compression/frame_format.h"
#include "compression/quantizer.h"
#include "compression/rice.h"

namespace rivulet {
namespace {

absl::Status Truncated(const char* what) {
  return absl::InvalidArgumentError(absl::StrFormat("%s is cut off", what));
}

// The values of one segment: `count` of them, at `value_bytes` each, with a
// step for each `values_per_step` when they are levels.
struct ValueLayout {
  int value_bytes = 0;
  uint64_t count = 0;
  absl::string_view steps;
  uint64_t values_per_step = 1;
};

absl::Status CheckFinite(float value, uint64_t index) {
  if (std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("value %u is not finite", index));
}

absl::Status DecodeFloats(absl::string_view bytes, std::vector<float>* values) {
  values->resize(bytes.size() / 4);
  for (size_t i = 0; i < values->size(); ++i) {
    (*values)[i] = std::bit_cast<float>(LoadLittleEndian(bytes, 4 * i, 4));
    RV_RETURN_IF_ERROR(CheckFinite((*values)[i], i));
  }
  return absl::OkStatus();
}

absl::Status DecodeLevels(absl::string_view bytes, const ValueLayout& layout,
                          std::vector<float>* values) {
  const int bits = 8 * layout.value_bytes;
  const int32_t max_level = MaxLevel(bits);
  values->resize(layout.count);
  float step = 0;
  for (uint64_t i = 0; i < layout.count; ++i) {
    if (i % layout.values_per_step == 0) {
      const size_t offset = i / layout.values_per_step * internal::kStepBytes;
      step = StepFromBits(static_cast<uint16_t>(
          LoadLittleEndian(layout.steps, offset, internal::kStepBytes)));
      if (!std::isfinite(step) || std::signbit(step)) {
        return absl::InvalidArgumentError(
            absl::StrFormat("step of value %u is negative or not finite", i));
      }
    }
    const uint32_t raw =
        LoadLittleEndian(bytes, i * static_cast<uint64_t>(layout.value_bytes),
                         layout.value_bytes);
    const int32_t level = bits == 8
                              ? static_cast<int32_t>(static_cast<int8_t>(raw))
                              : static_cast<int32_t>(static_cast<int16_t>(raw));
    if (level < -max_level) {
      return absl::InvalidArgumentError(
          absl::StrFormat("level of value %u is %d; allowed: %d to %d", i,
                          level, -max_level, max_level));
    }
    (*values)[i] = static_cast<float>(level) * step;
    RV_RETURN_IF_ERROR(CheckFinite((*values)[i], i));
  }
  return absl::OkStatus();
}

absl::Status DecodeValues(const ValueLayout& layout, ByteReader* body,
                          std::vector<float>* values) {
  absl::string_view bytes;
  // count is at most 2^32 - 1, so the product does not overflow.
  if (!body->ReadBytes(layout.count * static_cast<uint64_t>(layout.value_bytes),
                       &bytes)) {
    return Truncated("list of values");
  }
  return layout.value_bytes == 4 ? DecodeFloats(bytes, values)
                                 : DecodeLevels(bytes, layout, values);
}

// Each position has a value: nothing is reserved for what cannot follow.
absl::Status CheckCount(uint64_t count, int value_bytes,
                        const ByteReader& body) {
  const size_t left = body.rest().size();
  if (count <= left / static_cast<size_t>(value_bytes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%u positions announced, but %u bytes are left for their values", count,
      left));
}

absl::Status DecodeBitmap(int64_t size, int value_bytes, ByteReader* body,
                          std::vector<uint32_t>* positions) {
  absl::string_view bytes;
  if (!body->ReadBytes(static_cast<uint64_t>((size + 7) / 8), &bytes)) {
    return Truncated("bitmap");
  }
  uint64_t count = 0;
  for (const char byte : bytes) {
    count += static_cast<uint64_t>(std::popcount(static_cast<uint8_t>(byte)));
  }
  RV_RETURN_IF_ERROR(CheckCount(count, value_bytes, *body));
  positions->reserve(count);
  for (size_t b = 0; b < bytes.size(); ++b) {
    for (uint32_t bits = static_cast<uint8_t>(bytes[b]); bits != 0;
         bits &= bits - 1) {
      const uint64_t position =
          8 * uint64_t{b} + static_cast<uint64_t>(std::countr_zero(bits));
      if (position >= static_cast<uint64_t>(size)) {
        return absl::OutOfRangeError(absl::StrFormat(
            "position %u in a segment of %d elements", position, size));
      }
      positions->push_back(static_cast<uint32_t>(position));
    }
  }
  if (positions->empty()) {
    return absl::InvalidArgumentError("bitmap without a position");
  }
  return absl::OkStatus();
}

absl::Status DecodeDense(int64_t size, ValueLayout layout, ByteReader* body,
                         SegmentUpdate* update) {
  layout.count = static_cast<uint64_t>(size);
  if (layout.value_bytes != 4) {
    layout.values_per_step = kQuantizationBlock;
    const uint64_t blocks =
        (layout.count + kQuantizationBlock - 1) / kQuantizationBlock;
    if (!body->ReadBytes(blocks * internal::kStepBytes, &layout.steps)) {
      return Truncated("list of steps");
    }
  }
  return DecodeValues(layout, body, &update->values);
}

absl::Status DecodeSparse(int64_t size, uint8_t positions_code,
                          ValueLayout layout, ByteReader* body,
                          SegmentUpdate* update) {
  const bool rice = positions_code <= internal::kRiceLast;
  uint64_t count = 0;
  if (rice) {
    if (!body->ReadVarint(&count)) return Truncated("number of positions");
    if (count == 0) {
      return absl::InvalidArgumentError("segment without a position");
    }
    RV_RETURN_IF_ERROR(CheckCount(count, layout.value_bytes, *body));
  }
  if (layout.value_bytes != 4 &&
      !body->ReadBytes(internal::kStepBytes, &layout.steps)) {
    return Truncated("step");
  }
  if (rice) {
    size_t consumed = 0;
    RV_RETURN_IF_ERROR(DecodeRice(body->rest(), count, positions_code, size,
                                  &update->positions, &consumed));
    absl::string_view used;
    RV_CHECK(body->ReadBytes(consumed, &used));
  } else {
    RV_RETURN_IF_ERROR(
        DecodeBitmap(size, layout.value_bytes, body, &update->positions));
  }
  layout.count = update->positions.size();
  layout.values_per_step = std::numeric_limits<uint64_t>::max();
  return DecodeValues(layout, body, &update->values);
}

// The layout byte and what follows it; `update->segment` is known.
absl::Status DecodeSegment(int64_t size, ByteReader* body,
                           SegmentUpdate* update) {
  uint8_t layout_byte = 0;
  if (!body->ReadByte(&layout_byte)) return Truncated("layout");
  const uint8_t values_code = layout_byte & 3;
  const uint8_t positions_code = layout_byte >> 2;
  const bool known = values_code <= internal::kValues32 &&
                     positions_code <= internal::kReplaceAll &&
                     (positions_code != internal::kReplaceAll ||
                      values_code == internal::kValues32);
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrFormat("unknown layout 0x%02x", layout_byte));
  }
  if (size == 0) {
    return absl::InvalidArgumentError("update of a segment without elements");
  }
  ValueLayout layout;
  layout.value_bytes = 1 << values_code;
  switch (positions_code) {
    case internal::kDense:
      update->mode = SegmentUpdate::Mode::kAddDense;
      return DecodeDense(size, layout, body, update);
    case internal::kReplaceAll:
      update->mode = SegmentUpdate::Mode::kReplace;
      return DecodeDense(size, layout, body, update);
    default:
      update->mode = SegmentUpdate::Mode::kAddSparse;
      return DecodeSparse(size, positions_code, layout, body, update);
  }
}

// Takes one frame's checked body off the front of *bytes.
absl::StatusOr<absl::string_view> NextBody(absl::string_view* bytes) {
  if (static_cast<uint8_t>((*bytes)[0]) != kFrameVersion) {
    return absl::UnimplementedError(
        absl::StrFormat("frame has version %u; this build reads version %u",
                        static_cast<uint8_t>((*bytes)[0]), kFrameVersion));
  }
  ByteReader reader(bytes->substr(1));
  uint64_t body_bytes = 0;
  absl::string_view body;
  absl::string_view crc;
  if (!reader.ReadVarint(&body_bytes) || !reader.ReadBytes(body_bytes, &body) ||
      !reader.ReadBytes(internal::kCrcBytes, &crc)) {
    return absl::DataLossError(absl::StrFormat(
        "frame is cut off, or its length is damaged: %u bytes are there",
        bytes->size()));
  }
  const absl::string_view covered(
      bytes->data(), static_cast<size_t>(crc.data() - bytes->data()));
  const uint32_t found = LoadLittleEndian(crc, 0, internal::kCrcBytes);
  const uint32_t computed = MaskedCrc32c(covered);
  if (found != computed) {
    return absl::DataLossError(absl::StrFormat(
        "frame of %u bytes has checksum 0x%08x, its bytes give 0x%08x",
        covered.size() + internal::kCrcBytes, found, computed));
  }
  bytes->remove_prefix(covered.size() + internal::kCrcBytes);
  return body;
}

}  // namespace

void SegmentUpdate::AddTo(float scale, absl::Span<float> target) const {
  RV_CHECK(mode != Mode::kReplace);
  if (mode == Mode::kAddDense) {
    RV_CHECK_EQ(values.size(), target.size());
    for (size_t i = 0; i < values.size(); ++i) target[i] += scale * values[i];
    return;
  }
  RV_CHECK(positions.empty() || positions.back() < target.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    target[positions[i]] += scale * values[i];
  }
}

void SegmentUpdate::ApplyTo(absl::Span<float> target) const {
  if (mode != Mode::kReplace) {
    AddTo(1.0f, target);
    return;
  }
  RV_CHECK_EQ(values.size(), target.size());
  std::copy(values.begin(), values.end(), target.begin());
}

absl::StatusOr<std::vector<SegmentUpdate>> DecodeFrames(
    absl::string_view bytes, absl::Span<const int64_t> segment_sizes) {
  std::vector<SegmentUpdate> updates;
  // The last frame that each segment was in, counted from 1.
  std::vector<uint64_t> seen_in(segment_sizes.size(), 0);
  for (uint64_t frame = 1; !bytes.empty(); ++frame) {
    RV_ASSIGN_OR_RETURN(const absl::string_view body_bytes, NextBody(&bytes));
    ByteReader body(body_bytes);
    int64_t next_segment = 0;
    while (body.remaining() > 0) {
      uint64_t delta = 0;
      if (!body.ReadVarint(&delta)) return Truncated("segment number");
      if (delta > std::numeric_limits<uint32_t>::max() * uint64_t{2}) {
        return absl::OutOfRangeError("segment number beyond 32 bits");
      }
      const int64_t segment = next_segment + UnZigZag(delta);
      if (segment < 0 || segment >= static_cast<int64_t>(seen_in.size())) {
        return absl::OutOfRangeError(absl::StrFormat("segment %d; there are %u",
                                                     segment, seen_in.size()));
      }
      uint64_t& last_frame = seen_in[static_cast<size_t>(segment)];
      if (last_frame == frame) {
        return absl::InvalidArgumentError(
            absl::StrFormat("segment %d is twice in a frame", segment));
      }
      last_frame = frame;
      next_segment = segment + 1;
      const int64_t size = segment_sizes[static_cast<size_t>(segment)];
      RV_CHECK(size >= 0 && size <= std::numeric_limits<uint32_t>::max());
      SegmentUpdate update;
      update.segment = static_cast<uint32_t>(segment);
      RV_RETURN_IF_ERROR(Annotate(DecodeSegment(size, &body, &update),
                                  absl::StrFormat("segment %d", segment)));
      updates.push_back(std::move(update));
    }
  }
  return updates;
}

}  // namespace rivulet
