#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "compression/bit_io.h"
#include "compression/frame.h"
#include "compression/frame_format.h"
#include "compression/quantizer.h"
#include "compression/rice.h"

namespace rivulet {
namespace {

uint8_t ValueCode(int value_bits) {
  RV_CHECK(IsValueBits(value_bits)) << value_bits;
  if (value_bits == 8) return internal::kValues8;
  return value_bits == 16 ? internal::kValues16 : internal::kValues32;
}

void AppendLayout(uint8_t positions, uint8_t values, std::string* out) {
  out->push_back(static_cast<char>(positions << 2 | values));
}

void AppendStep(float step, std::string* out) {
  AppendLittleEndian(StepToBits(step), internal::kStepBytes, out);
}

// Sent values [begin, end) of `tensor`, as levels or floats.
void AppendValues(const CompressedTensor& tensor, size_t begin, size_t end,
                  std::string* out) {
  const int num_bytes = tensor.value_bits / 8;
  for (size_t i = begin; i < end; ++i) {
    const uint32_t bits = tensor.value_bits == 32
                              ? std::bit_cast<uint32_t>(tensor.values[i])
                              : static_cast<uint32_t>(tensor.levels[i]);
    AppendLittleEndian(bits, num_bytes, out);
  }
}

void AppendBitmap(absl::Span<const uint32_t> positions, uint32_t base,
                  int64_t num_bytes, std::string* out) {
  const size_t start = out->size();
  out->resize(start + static_cast<size_t>(num_bytes), '\0');
  for (const uint32_t p : positions) {
    const uint32_t bit = p - base;
    char& byte = (*out)[start + bit / 8];
    byte = static_cast<char>(static_cast<uint8_t>(byte) | 1u << (bit % 8));
  }
}

void AppendDense(const CompressedTensor& tensor, int64_t begin, int64_t end,
                 std::string* out) {
  AppendLayout(internal::kDense, ValueCode(tensor.value_bits), out);
  if (tensor.value_bits != 32) {
    RV_CHECK_EQ(begin % kQuantizationBlock, 0);
    for (int64_t i = begin; i < end; i += kQuantizationBlock) {
      AppendStep(tensor.steps[static_cast<size_t>(i / kQuantizationBlock)],
                 out);
    }
  }
  AppendValues(tensor, static_cast<size_t>(begin), static_cast<size_t>(end),
               out);
}

// Sent values [first, last), which lie in elements [begin, end).
void AppendSparse(const CompressedTensor& tensor, size_t first, size_t last,
                  int64_t begin, int64_t end, std::string* out) {
  const absl::Span<const uint32_t> positions =
      absl::MakeConstSpan(tensor.positions).subspan(first, last - first);
  const uint32_t base = static_cast<uint32_t>(begin);
  const RiceSize rice = BestRice(positions, base);
  const int64_t bitmap_bytes = (end - begin + 7) / 8;
  const uint8_t values = ValueCode(tensor.value_bits);
  const bool use_rice =
      rice.num_bytes + VarintLength(positions.size()) <= bitmap_bytes;
  if (use_rice) {
    AppendLayout(static_cast<uint8_t>(internal::kRiceFirst + rice.parameter),
                 values, out);
    AppendVarint(positions.size(), out);
  } else {
    AppendLayout(internal::kBitmap, values, out);
  }
  if (tensor.value_bits != 32) AppendStep(tensor.steps[0], out);
  if (use_rice) {
    AppendRice(positions, base, rice.parameter, out);
  } else {
    AppendBitmap(positions, base, bitmap_bytes, out);
  }
  AppendValues(tensor, first, last, out);
}

size_t LowerBound(const std::vector<uint32_t>& positions, int64_t at) {
  return static_cast<size_t>(
      std::lower_bound(positions.begin(), positions.end(), at,
                       [](uint32_t p, int64_t x) { return p < x; }) -
      positions.begin());
}

}  // namespace

FrameEncoder::FrameEncoder() = default;

void FrameEncoder::AppendSegmentNumber(uint32_t segment) {
  RV_CHECK(added_.insert(segment).second)
      << "segment " << segment << " is in the frame already";
  AppendVarint(ZigZag(static_cast<int64_t>(segment) -
                      static_cast<int64_t>(next_segment_)),
               &body_);
  next_segment_ = segment + 1;
}

void FrameEncoder::Add(uint32_t segment, const CompressedTensor& tensor,
                       int64_t begin, int64_t end) {
  RV_CHECK(0 <= begin && begin < end && end <= tensor.size)
      << "[" << begin << ", " << end << ") of " << tensor.size;
  if (tensor.dense) {
    AppendSegmentNumber(segment);
    AppendDense(tensor, begin, end, &body_);
    return;
  }
  const size_t first = LowerBound(tensor.positions, begin);
  const size_t last = LowerBound(tensor.positions, end);
  if (first == last) return;
  AppendSegmentNumber(segment);
  AppendSparse(tensor, first, last, begin, end, &body_);
}

void FrameEncoder::AddExact(uint32_t segment, absl::Span<const float> values) {
  RV_CHECK(!values.empty());
  AppendSegmentNumber(segment);
  AppendLayout(internal::kReplaceAll, internal::kValues32, &body_);
  for (const float v : values) {
    AppendLittleEndian(std::bit_cast<uint32_t>(v), 4, &body_);
  }
}

bool FrameEncoder::empty() const { return body_.empty(); }

int64_t FrameEncoder::size_bytes() const {
  return 1 + VarintLength(body_.size()) + static_cast<int64_t>(body_.size()) +
         internal::kCrcBytes;
}

std::string FrameEncoder::Finish() {
  std::string frame;
  frame.reserve(static_cast<size_t>(size_bytes()));
  frame.push_back(static_cast<char>(kFrameVersion));
  AppendVarint(body_.size(), &frame);
  frame += body_;
  AppendLittleEndian(MaskedCrc32c(frame), internal::kCrcBytes, &frame);
  body_.clear();
  next_segment_ = 0;
  added_.clear();
  return frame;
}

}  // namespace rivulet
