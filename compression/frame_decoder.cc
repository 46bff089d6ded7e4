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
#include "compression/frame_description.h"
#include "compression/frame_format.h"
#include "compression/level_coder.h"
#include "compression/quantizer.h"
#include "compression/rice.h"

namespace rivulet {
namespace {

using internal::BookSize;
using internal::IsBook;
using internal::IsLinear;
using internal::SymbolBits;

absl::Status Truncated(const char* what) {
  return absl::InvalidArgumentError(absl::StrFormat("%s is cut off", what));
}

// One block under way: which segments it is of, and how it is written.
struct Block {
  std::vector<uint32_t> segments;
  uint64_t elements = 0;  // of all of them
  uint8_t values = 0;
  uint8_t places = 0;
  LevelMode levels = LevelMode::kPacked;
  // Known once the content is decoded; only descriptions look at them.
  uint64_t count = 0;
  uint8_t rice_parameter = 0;
  size_t position_bytes = 0;
  size_t parameter_bytes = 0;
  size_t value_bytes = 0;

  bool sparse() const { return places <= internal::kPlacesBitmap; }
};

// Each value has a symbol: nothing is reserved for what cannot follow.
absl::Status CheckCount(uint64_t count, uint8_t values,
                        const ByteReader& body) {
  // Of a book's levels the sign takes a bit, whatever the code.
  const uint64_t bits =
      IsBook(values) ? 1 : static_cast<uint64_t>(SymbolBits(values));
  const size_t left = body.remaining();
  if (count <= uint64_t{left} * 8 / bits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%u values announced, but %u bytes are left for them", count, left));
}

absl::Status DecodeBitmap(const Block& block, ByteReader* body,
                          std::vector<uint32_t>* positions) {
  absl::string_view bytes;
  if (!body->ReadBytes((block.elements + 7) / 8, &bytes)) {
    return Truncated("bitmap");
  }
  uint64_t count = 0;
  for (const char byte : bytes) {
    count += static_cast<uint64_t>(std::popcount(static_cast<uint8_t>(byte)));
  }
  RV_RETURN_IF_ERROR(CheckCount(count, block.values, *body));
  positions->reserve(count);
  for (size_t b = 0; b < bytes.size(); ++b) {
    for (uint32_t bits = static_cast<uint8_t>(bytes[b]); bits != 0;
         bits &= bits - 1) {
      const uint64_t position =
          8 * uint64_t{b} + static_cast<uint64_t>(std::countr_zero(bits));
      if (position >= block.elements) {
        return absl::OutOfRangeError(absl::StrFormat(
            "position %u in a block of %u elements", position, block.elements));
      }
      positions->push_back(static_cast<uint32_t>(position));
    }
  }
  if (positions->empty()) {
    return absl::InvalidArgumentError("bitmap without a position");
  }
  return absl::OkStatus();
}

absl::Status DecodeRicePositions(const Block& block, ByteReader* body,
                                 std::vector<uint32_t>* positions,
                                 uint8_t* rice_parameter) {
  uint64_t count = 0;
  uint8_t& parameter = *rice_parameter;
  if (!body->ReadVarint(&count)) return Truncated("number of positions");
  if (count == 0) {
    return absl::InvalidArgumentError("block without a position");
  }
  if (!body->ReadByte(&parameter)) return Truncated("Rice parameter");
  if (parameter > kMaxRiceParameter) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "Rice parameter %u; allowed: 0 to %d", parameter, kMaxRiceParameter));
  }
  RV_RETURN_IF_ERROR(CheckCount(count, block.values, *body));
  size_t consumed = 0;
  RV_RETURN_IF_ERROR(DecodeRice(body->rest(), count, parameter,
                                static_cast<int64_t>(block.elements), positions,
                                &consumed));
  RV_CHECK(body->Skip(consumed));
  return absl::OkStatus();
}

absl::Status DecodeLinear16(ByteReader* body, absl::Span<int16_t> levels) {
  absl::string_view bytes;
  if (!body->ReadBytes(2 * levels.size(), &bytes)) {
    return Truncated("list of values");
  }
  const int32_t max_level = MaxLevel(ValueCode::kLinear16);
  for (size_t i = 0; i < levels.size(); ++i) {
    levels[i] = static_cast<int16_t>(LoadLittleEndian(bytes, 2 * i, 2));
    if (levels[i] < -max_level) {
      return absl::InvalidArgumentError(
          absl::StrFormat("level of value %u is %d; allowed: %d to %d", i,
                          levels[i], -max_level, max_level));
    }
  }
  return absl::OkStatus();
}

// `count` symbols as integers; floats are read by DecodeFloats.
absl::Status DecodeSymbols(const Block& block, uint64_t count, ByteReader* body,
                           std::vector<int16_t>* levels) {
  const uint8_t values = block.values;
  RV_RETURN_IF_ERROR(CheckCount(count, values, *body));
  levels->resize(count);
  const absl::Span<int16_t> out = absl::MakeSpan(*levels);
  if (values == internal::kValuesLinear16) return DecodeLinear16(body, out);
  size_t consumed = 0;
  RV_RETURN_IF_ERROR(
      IsBook(values)
          ? DecodeLevels(body->rest(), BookSize(values), block.levels, out,
                         &consumed)
          : DecodeIntegers(body->rest(), SymbolBits(values), out, &consumed));
  RV_CHECK(body->Skip(consumed));
  return absl::OkStatus();
}

absl::Status DecodeFloats(uint64_t count, ByteReader* body,
                          absl::string_view* bytes) {
  if (!body->ReadBytes(4 * count, bytes)) return Truncated("list of values");
  return absl::OkStatus();
}

// Where the values of one segment lie among those of its block, and its steps
// or its book.
struct Part {
  uint32_t segment = 0;
  uint64_t begin = 0;  // of its values
  uint64_t end = 0;
  uint64_t offset = 0;  // of its first element in the block
  absl::string_view parameters;
};

// The parts that have values. Takes their parameters off the body.
absl::StatusOr<std::vector<Part>> PartsOf(const Block& block,
                                          absl::Span<const uint32_t> positions,
                                          const SegmentTable& table,
                                          ByteReader* body) {
  std::vector<Part> parts;
  uint64_t offset = 0;
  uint64_t value = 0;
  for (const uint32_t segment : block.segments) {
    const auto size = static_cast<uint64_t>(table.size(segment));
    Part part;
    part.segment = segment;
    part.offset = offset;
    part.begin = value;
    if (block.sparse()) {
      while (value < positions.size() && positions[value] < offset + size) {
        ++value;
      }
    } else {
      value += size;
    }
    part.end = value;
    offset += size;
    if (part.begin == part.end) continue;
    uint64_t parameters = 0;
    if (IsBook(block.values)) {
      parameters = static_cast<uint64_t>(BookSize(block.values));
    } else if (IsLinear(block.values)) {
      parameters = block.sparse()
                       ? 1
                       : (size + kQuantizationBlock - 1) / kQuantizationBlock;
    }
    if (!body->ReadBytes(parameters * internal::kStepBytes, &part.parameters)) {
      return Truncated("list of steps");
    }
    parts.push_back(part);
  }
  return parts;
}

absl::Status CheckFinite(float value, uint64_t index) {
  if (std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("value %u is not finite", index));
}

absl::StatusOr<std::vector<float>> ParametersOf(const Part& part, bool book) {
  std::vector<float> parameters;
  parameters.reserve(part.parameters.size() / internal::kStepBytes);
  float before = 0;
  for (size_t at = 0; at < part.parameters.size(); at += internal::kStepBytes) {
    const float p = StepFromBits(static_cast<uint16_t>(
        LoadLittleEndian(part.parameters, at, internal::kStepBytes)));
    if (!std::isfinite(p) || std::signbit(p)) {
      return absl::InvalidArgumentError("a step is negative or not finite");
    }
    if (book && (p == 0 || p < before)) {
      return absl::InvalidArgumentError("a book's magnitudes do not rise");
    }
    before = p;
    parameters.push_back(p);
  }
  return parameters;
}

// The values of one part, from its levels or bytes.
absl::Status FillValues(const Block& block, const Part& part,
                        absl::Span<const int16_t> levels,
                        absl::string_view floats, std::vector<float>* values) {
  values->reserve(part.end - part.begin);
  if (block.values == internal::kValuesFloat) {
    for (uint64_t i = part.begin; i < part.end; ++i) {
      values->push_back(
          std::bit_cast<float>(LoadLittleEndian(floats, 4 * i, 4)));
      RV_RETURN_IF_ERROR(CheckFinite(values->back(), i));
    }
    return absl::OkStatus();
  }
  RV_ASSIGN_OR_RETURN(const std::vector<float> parameters,
                      ParametersOf(part, IsBook(block.values)));
  if (IsBook(block.values)) {
    for (uint64_t i = part.begin; i < part.end; ++i) {
      const int level = levels[i];
      values->push_back(level > 0
                            ? parameters[static_cast<size_t>(level - 1)]
                            : -parameters[static_cast<size_t>(-level - 1)]);
    }
    return absl::OkStatus();
  }
  for (uint64_t i = part.begin; i < part.end; ++i) {
    const uint64_t group =
        block.sparse() ? 0 : (i - part.begin) / kQuantizationBlock;
    values->push_back(static_cast<float>(levels[i]) * parameters[group]);
    RV_RETURN_IF_ERROR(CheckFinite(values->back(), i));
  }
  return absl::OkStatus();
}

absl::Status DecodeContent(const SegmentTable& table, Block* decoded,
                           ByteReader* body,
                           std::vector<SegmentUpdate>* updates) {
  Block& block = *decoded;
  std::vector<uint32_t> positions;
  block.count = block.elements;
  const size_t before_positions = body->remaining();
  if (block.sparse()) {
    RV_RETURN_IF_ERROR(block.places == internal::kPlacesRice
                           ? DecodeRicePositions(block, body, &positions,
                                                 &block.rice_parameter)
                           : DecodeBitmap(block, body, &positions));
    block.count = positions.size();
  } else {
    RV_RETURN_IF_ERROR(CheckCount(block.count, block.values, *body));
  }
  const size_t before_parameters = body->remaining();
  RV_ASSIGN_OR_RETURN(const std::vector<Part> parts,
                      PartsOf(block, positions, table, body));
  const size_t before_values = body->remaining();
  std::vector<int16_t> levels;
  absl::string_view floats;
  RV_RETURN_IF_ERROR(block.values == internal::kValuesFloat
                         ? DecodeFloats(block.count, body, &floats)
                         : DecodeSymbols(block, block.count, body, &levels));
  block.position_bytes = before_positions - before_parameters;
  block.parameter_bytes = before_parameters - before_values;
  block.value_bytes = before_values - body->remaining();
  for (const Part& part : parts) {
    SegmentUpdate update;
    update.segment = part.segment;
    update.mode = block.sparse() ? SegmentUpdate::Mode::kAddSparse
                  : block.places == internal::kPlacesAll
                      ? SegmentUpdate::Mode::kAddDense
                      : SegmentUpdate::Mode::kReplace;
    RV_RETURN_IF_ERROR(FillValues(block, part, levels, floats, &update.values));
    if (block.sparse()) {
      update.positions.assign(positions.begin() + part.begin,
                              positions.begin() + part.end);
      for (uint32_t& p : update.positions) {
        p -= static_cast<uint32_t>(part.offset);
      }
    }
    updates->push_back(std::move(update));
  }
  return absl::OkStatus();
}

// Reads the form and says which segments, from `first` on, the block is of.
absl::StatusOr<Block> DecodeHead(uint32_t first, const SegmentTable& table,
                                 ByteReader* body) {
  uint8_t form = 0;
  if (!body->ReadByte(&form)) return Truncated("form");
  Block block;
  block.values = form & 7;
  block.places = form >> internal::kPlacesShift & 7;
  const bool fits =
      block.places <= internal::kPlacesBitmap ||
      (block.places == internal::kPlacesAll && !IsBook(block.values)) ||
      (block.places == internal::kPlacesReplace &&
       block.values == internal::kValuesFloat);
  const bool adaptive = (form & internal::kAdaptive) != 0;
  if (adaptive) block.levels = LevelMode::kAdaptive;
  if (!fits || (adaptive && !IsBook(block.values))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("unknown form 0x%02x", form));
  }
  uint64_t more = 0;
  if ((form & internal::kGroup) != 0) {
    if (!body->ReadVarint(&more)) return Truncated("number of segments");
    if (more == 0) return absl::InvalidArgumentError("group of one segment");
  }
  for (uint32_t segment = first;; segment = table.Next(segment)) {
    if (segment == table.count()) {
      return absl::OutOfRangeError(
          absl::StrFormat("a block of %u segments from %u on; there are %u",
                          more + 1, first, table.count()));
    }
    block.segments.push_back(segment);
    block.elements += static_cast<uint64_t>(table.size(segment));
    if (block.segments.size() > more) break;
  }
  if (block.elements == 0) {
    return absl::InvalidArgumentError("update of a segment without elements");
  }
  if (block.elements > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a block of %u elements; positions have 32 bits", block.elements));
  }
  return block;
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

BlockDescription DescriptionOf(const Block& block) {
  BlockDescription d;
  d.segments = block.segments;
  d.elements = static_cast<int64_t>(block.elements);
  d.count = static_cast<int64_t>(block.count);
  d.replaces = block.places == internal::kPlacesReplace;
  switch (block.places) {
    case internal::kPlacesRice:
      d.positions = absl::StrFormat("Rice %u", block.rice_parameter);
      break;
    case internal::kPlacesBitmap:
      d.positions = "bitmap";
      break;
    default:
      d.positions = "all";
  }
  if (IsBook(block.values)) {
    d.values = absl::StrFormat(
        "book of %d%s", BookSize(block.values),
        block.levels == LevelMode::kAdaptive ? ", adaptive" : "");
  } else if (block.values == internal::kValuesFloat) {
    d.values = "fp32";
  } else {
    d.values = absl::StrFormat("%d bits", SymbolBits(block.values));
  }
  d.position_bytes = static_cast<int64_t>(block.position_bytes);
  d.parameter_bytes = static_cast<int64_t>(block.parameter_bytes);
  d.value_bytes = static_cast<int64_t>(block.value_bytes);
  return d;
}

// Decodes everything, and calls on_block(block) for each block that has been.
template <typename OnBlock>
absl::StatusOr<std::vector<SegmentUpdate>> Walk(absl::string_view bytes,
                                                const SegmentTable& table,
                                                OnBlock on_block) {
  std::vector<SegmentUpdate> updates;
  // The last frame that each segment was in, counted from 1.
  std::vector<uint64_t> seen_in(table.count(), 0);
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
      if (segment < 0 || segment >= static_cast<int64_t>(table.count())) {
        return absl::OutOfRangeError(absl::StrFormat("segment %d; there are %u",
                                                     segment, table.count()));
      }
      const auto context = [segment] {
        return absl::StrFormat("segment %d", segment);
      };
      auto block = DecodeHead(static_cast<uint32_t>(segment), table, &body);
      if (!block.ok()) return Annotate(block.status(), context());
      for (const uint32_t s : block->segments) {
        if (seen_in[s] == frame) {
          return absl::InvalidArgumentError(
              absl::StrFormat("segment %u is twice in a frame", s));
        }
        seen_in[s] = frame;
      }
      next_segment = int64_t{block->segments.back()} + 1;
      const absl::Status content =
          DecodeContent(table, &*block, &body, &updates);
      if (!content.ok()) return Annotate(content, context());
      on_block(*block);
    }
  }
  return updates;
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
    absl::string_view bytes, const SegmentTable& table) {
  return Walk(bytes, table, [](const Block&) {});
}

absl::StatusOr<FrameDescription> DescribeFrames(absl::string_view bytes,
                                                const SegmentTable& table) {
  FrameDescription description;
  description.num_bytes = static_cast<int64_t>(bytes.size());
  RV_ASSIGN_OR_RETURN(description.updates,
                      Walk(bytes, table, [&](const Block& block) {
                        description.blocks.push_back(DescriptionOf(block));
                      }));
  return description;
}

}  // namespace rivulet
