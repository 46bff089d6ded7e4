#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "compression/bit_io.h"
#include "compression/frame.h"
#include "compression/frame_format.h"
#include "compression/level_coder.h"
#include "compression/quantizer.h"
#include "compression/rice.h"

namespace rivulet {
namespace {

using internal::IsBook;

// Joining blocks saves some bytes a block, whatever their size; looking for it
// costs time that grows with the number of entries, and pays for few.
constexpr int64_t kJoinBelow = 128;  // values of one
constexpr int64_t kJoinUpTo = 512;   // ... of all together

uint8_t ValuesOf(const CompressedTensor& tensor) {
  switch (tensor.code) {
    case ValueCode::kFloat:
      return internal::kValuesFloat;
    case ValueCode::kLinear16:
      return internal::kValuesLinear16;
    case ValueCode::kLinear8:
      return internal::kValuesLinear8;
    case ValueCode::kLinear4:
      return internal::kValuesLinear4;
    case ValueCode::kBook:
      break;
  }
  RV_CHECK(!tensor.book.empty() && tensor.book.size() <= kMaxBook);
  const auto size = static_cast<unsigned>(tensor.book.size());
  return static_cast<uint8_t>(internal::kValuesBook1 +
                              std::bit_width(size - 1));
}

void AppendStep(float step, std::string* out) {
  AppendLittleEndian(StepToBits(step), internal::kStepBytes, out);
}

size_t LowerBound(const std::vector<uint32_t>& positions, int64_t at) {
  return static_cast<size_t>(
      std::lower_bound(positions.begin(), positions.end(), at,
                       [](uint32_t p, int64_t x) { return p < x; }) -
      positions.begin());
}

void AppendBitmap(absl::Span<const uint32_t> positions, int64_t num_bytes,
                  std::string* out) {
  const size_t start = out->size();
  out->resize(start + static_cast<size_t>(num_bytes), '\0');
  for (const uint32_t p : positions) {
    char& byte = (*out)[start + p / 8];
    byte = static_cast<char>(static_cast<uint8_t>(byte) | 1u << (p % 8));
  }
}

// Says how the levels of a book are coded; packed is the code of all others.
LevelMode AppendSymbols(const CompressedTensor& values, uint8_t kind,
                        std::string* out) {
  switch (kind) {
    case internal::kValuesFloat:
      for (const float v : values.values) {
        AppendLittleEndian(std::bit_cast<uint32_t>(v), 4, out);
      }
      return LevelMode::kPacked;
    case internal::kValuesLinear16:
      for (const int16_t level : values.levels) {
        AppendLittleEndian(static_cast<uint16_t>(level), 2, out);
      }
      return LevelMode::kPacked;
    case internal::kValuesLinear8:
    case internal::kValuesLinear4:
      AppendIntegers(values.levels, internal::SymbolBits(kind), out);
      return LevelMode::kPacked;
    default:
      return AppendLevels(values.levels, internal::BookSize(kind), out);
  }
}

}  // namespace

// What one block may hold: parts of consecutive segments of a class, in the
// order of the table, whose elements are counted through.
struct FrameEncoder::Block {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t more = 0;  // segments beyond the first
  uint8_t values = 0;
  uint8_t places = 0;
  int64_t elements = 0;
  // The symbols; `steps` and `book` are empty.
  CompressedTensor content;
  // Per segment: its steps, or its book.
  std::vector<std::vector<float>> parameters;

  bool sparse() const { return places == internal::kPlacesRice; }
  int64_t count() const { return content.count(); }
};

FrameEncoder::FrameEncoder(const SegmentTable* table) : table_(table) {}
FrameEncoder::FrameEncoder(FrameEncoder&&) noexcept = default;
FrameEncoder& FrameEncoder::operator=(FrameEncoder&&) noexcept = default;
FrameEncoder::~FrameEncoder() = default;

void FrameEncoder::Push(Block block) {
  RV_CHECK(added_.insert(block.first).second)
      << "segment " << block.first << " is in the frame already";
  // An upper bound but for the parameters: 16 bits a position.
  const int bits =
      internal::SymbolBits(block.values) + (block.sparse() ? 16 : 0);
  estimate_ += 8 + (block.count() * bits + 7) / 8;
  for (const auto& p : block.parameters) {
    estimate_ += static_cast<int64_t>(p.size()) * internal::kStepBytes;
  }
  blocks_.push_back(std::move(block));
}

void FrameEncoder::Add(uint32_t segment, const CompressedTensor& tensor,
                       int64_t begin, int64_t end) {
  RV_CHECK(0 <= begin && begin < end && end <= tensor.size)
      << "[" << begin << ", " << end << ") of " << tensor.size;
  Block block;
  block.first = block.last = segment;
  block.elements = end - begin;
  size_t first = static_cast<size_t>(begin);
  size_t last = static_cast<size_t>(end);
  if (!tensor.dense) {
    first = LowerBound(tensor.positions, begin);
    last = LowerBound(tensor.positions, end);
    if (first == last) return;
  }
  block.values = ValuesOf(tensor);
  block.places = tensor.dense ? internal::kPlacesAll : internal::kPlacesRice;
  block.content.Reset(tensor.dense ? block.elements : 0, tensor.dense,
                      tensor.code);
  if (tensor.code == ValueCode::kFloat) {
    block.content.values.assign(tensor.values.begin() + first,
                                tensor.values.begin() + last);
    block.parameters.emplace_back();
  } else {
    block.content.levels.assign(tensor.levels.begin() + first,
                                tensor.levels.begin() + last);
    if (IsBook(block.values)) {
      block.parameters.push_back(tensor.book);
    } else if (tensor.dense) {
      RV_CHECK_EQ(begin % kQuantizationBlock, 0);
      block.parameters.emplace_back(
          tensor.steps.begin() + begin / kQuantizationBlock,
          tensor.steps.begin() +
              (end + kQuantizationBlock - 1) / kQuantizationBlock);
    } else {
      block.parameters.push_back(tensor.steps);
    }
  }
  if (!tensor.dense) {
    block.content.positions.reserve(last - first);
    for (size_t i = first; i < last; ++i) {
      block.content.positions.push_back(tensor.positions[i] -
                                        static_cast<uint32_t>(begin));
    }
  }
  Push(std::move(block));
}

void FrameEncoder::AddExact(uint32_t segment, absl::Span<const float> values) {
  RV_CHECK(!values.empty());
  Block block;
  block.first = block.last = segment;
  block.elements = static_cast<int64_t>(values.size());
  block.values = internal::kValuesFloat;
  block.places = internal::kPlacesReplace;
  block.content.Reset(block.elements, /*is_dense=*/true, ValueCode::kFloat);
  block.content.values.assign(values.begin(), values.end());
  block.parameters.emplace_back();
  Push(std::move(block));
}

bool FrameEncoder::empty() const { return blocks_.empty(); }

int64_t FrameEncoder::size_bytes() const { return 16 + estimate_; }

// Appends `next` to `*block`, whose last segment is followed by next's first.
FrameEncoder::Block FrameEncoder::Joined(const Block& block,
                                         const Block& next) {
  Block joined = block;
  joined.last = next.last;
  joined.more += next.more + 1;
  joined.values = std::max(block.values, next.values);
  CompressedTensor& content = joined.content;
  content.values.insert(content.values.end(), next.content.values.begin(),
                        next.content.values.end());
  content.levels.insert(content.levels.end(), next.content.levels.begin(),
                        next.content.levels.end());
  for (const uint32_t p : next.content.positions) {
    content.positions.push_back(p + static_cast<uint32_t>(block.elements));
  }
  joined.elements += next.elements;
  if (content.dense) content.size = joined.elements;
  joined.parameters.insert(joined.parameters.end(), next.parameters.begin(),
                           next.parameters.end());
  return joined;
}

bool FrameEncoder::MayJoin(const Block& block, const Block& next) const {
  if (table_ == nullptr || table_->Next(block.last) != next.first) return false;
  if (block.places != next.places) return false;
  if (block.values != next.values &&
      !(IsBook(block.values) && IsBook(next.values))) {
    return false;
  }
  return block.elements + next.elements <= 0xFFFFFFFF &&
         next.count() <= kJoinBelow &&
         block.count() + next.count() <= kJoinUpTo;
}

// A block as bytes, but for the number of its first segment.
std::string FrameEncoder::Encoded(const Block& block) {
  std::string out;
  uint8_t form = block.values;
  RiceSize rice;
  uint8_t places = block.places;
  const int64_t bitmap_bytes = (block.elements + 7) / 8;
  if (block.sparse()) {
    rice = BestRice(block.content.positions, 0);
    const int64_t rice_bytes =
        1 + VarintLength(block.content.positions.size()) + rice.num_bytes;
    if (bitmap_bytes < rice_bytes) places = internal::kPlacesBitmap;
  }
  form = static_cast<uint8_t>(form | places << internal::kPlacesShift);
  if (block.more > 0) form |= internal::kGroup;
  std::string symbols;
  if (AppendSymbols(block.content, block.values, &symbols) ==
      LevelMode::kAdaptive) {
    form |= internal::kAdaptive;
  }
  out.push_back(static_cast<char>(form));
  if (block.more > 0) AppendVarint(block.more, &out);
  if (places == internal::kPlacesRice) {
    AppendVarint(block.content.positions.size(), &out);
    out.push_back(static_cast<char>(rice.parameter));
    AppendRice(block.content.positions, 0, rice.parameter, &out);
  } else if (places == internal::kPlacesBitmap) {
    AppendBitmap(block.content.positions, bitmap_bytes, &out);
  }
  for (const std::vector<float>& parameters : block.parameters) {
    for (const float p : parameters) AppendStep(p, &out);
    if (!IsBook(block.values)) continue;
    // All books of a block are of one size; a smaller one repeats its last.
    const size_t size = static_cast<size_t>(internal::BookSize(block.values));
    for (size_t i = parameters.size(); i < size; ++i) {
      AppendStep(parameters.back(), &out);
    }
  }
  out += symbols;
  return out;
}

void FrameEncoder::AppendBlock(const Block& block, const std::string& bytes,
                               uint32_t* next_segment, std::string* body) {
  AppendVarint(ZigZag(static_cast<int64_t>(block.first) -
                      static_cast<int64_t>(*next_segment)),
               body);
  *body += bytes;
  *next_segment = block.last + 1;
}

std::string FrameEncoder::EncodeBody() {
  std::sort(blocks_.begin(), blocks_.end(),
            [](const Block& a, const Block& b) { return a.first < b.first; });
  // Each block is joined to the one that ends just before it in its class, if
  // that makes the frame smaller.
  std::vector<Block> joined;
  std::vector<std::string> bytes;
  for (Block& block : blocks_) {
    std::string alone = Encoded(block);
    bool done = false;
    for (size_t j = joined.size(); j-- > 0 && !done;) {
      if (!MayJoin(joined[j], block)) continue;
      Block both = Joined(joined[j], block);
      std::string together = Encoded(both);
      // A block of its own costs a segment number besides.
      if (together.size() <= bytes[j].size() + alone.size()) {
        joined[j] = std::move(both);
        bytes[j] = std::move(together);
        done = true;
      }
      break;
    }
    if (done) continue;
    joined.push_back(std::move(block));
    bytes.push_back(std::move(alone));
  }
  std::string body;
  uint32_t next_segment = 0;
  for (size_t i = 0; i < joined.size(); ++i) {
    AppendBlock(joined[i], bytes[i], &next_segment, &body);
  }
  return body;
}

std::string FrameEncoder::Finish() {
  const std::string body = EncodeBody();
  std::string frame;
  frame.reserve(body.size() + 16);
  frame.push_back(static_cast<char>(kFrameVersion));
  AppendVarint(body.size(), &frame);
  frame += body;
  AppendLittleEndian(MaskedCrc32c(frame), internal::kCrcBytes, &frame);
  Clear();
  return frame;
}

void FrameEncoder::Clear() {
  blocks_.clear();
  added_.clear();
  estimate_ = 0;
}

}  // namespace rivulet
