#include "compression/row_coder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "compression/bit_io.h"
#include "compression/rice.h"

namespace rivulet {
namespace {

// Chosen on rows that follow Zipf's law, with and without drift; the code's
// length depends little on any of them.
constexpr int kDecayLog2 = 7;    // messages that counts remember
constexpr uint32_t kUnit = 256;  // of a position sent
constexpr int kLeastLog2 = 7;    // of a count above class 0
constexpr uint32_t kPrior = 64;  // a row's weight besides its count

// Counts have 32 bits, so the highest class is 49.
constexpr size_t kMaxClasses = 64;

// Without a branch: classes of neighbouring rows are in no order.
int ClassOf(uint32_t count) {
  const int log2 = std::bit_width(count | 1u << (kLeastLog2 - 1)) - 1;
  const int half = static_cast<int>(count >> (log2 - 1) & 1);
  return count >> kLeastLog2 == 0 ? 0 : 1 + 2 * (log2 - kLeastLog2) + half;
}

// Bits of an end with `left` slots behind the last one coded.
uint64_t EndBits(uint64_t left, int k) {
  return left == 0 ? 0 : ((left - 1) >> k) + 1;
}

uint64_t ZigZagOf(int parameter, int guess) {
  return ZigZag(parameter - guess);
}
constexpr uint64_t kMaxZigZag = 4 * kMaxRiceParameter + 1;

// In LSD radix order by `digit_bits`, for keys below 2^key_bits.
void RadixSort(absl::Span<uint32_t> keys, int key_bits, int digit_bits) {
  std::vector<uint32_t> scratch(keys.size());
  std::vector<uint32_t> starts(size_t{1} << digit_bits);
  const uint32_t mask = (uint32_t{1} << digit_bits) - 1;
  absl::Span<uint32_t> from = keys;
  absl::Span<uint32_t> to = absl::MakeSpan(scratch);
  for (int shift = 0; shift < key_bits; shift += digit_bits) {
    std::fill(starts.begin(), starts.end(), 0);
    for (const uint32_t key : from) ++starts[key >> shift & mask];
    uint32_t sum = 0;
    for (uint32_t& start : starts) sum += std::exchange(start, sum);
    for (const uint32_t key : from) to[starts[key >> shift & mask]++] = key;
    std::swap(from, to);
  }
  if (from.data() != keys.data()) {
    std::copy(from.begin(), from.end(), keys.begin());
  }
}

void SortPositions(absl::Span<uint32_t> positions, int64_t size) {
  if (positions.size() < 64) {
    std::sort(positions.begin(), positions.end());
    return;
  }
  const int key_bits =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(size - 1)));
  RadixSort(positions, key_bits, positions.size() < 2048 ? 8 : 11);
}

}  // namespace

// What coding and decoding share, with a context's insides: the classes from
// the first, as long as positions are left.
class RowCode {
 public:
  RowCode(const RowContext& context, size_t count)
      : context_(context), positions_left_(count) {
    uint64_t total = 0;
    for (const RowContext::Class& c : context.classes_) total += c.weight;
    shift_ = std::max(0, static_cast<int>(std::bit_width(total)) - 24);
    for (const RowContext::Class& c : context.classes_) {
      weight_left_ += Weight(c);
    }
  }

  int64_t EncodedBytes(absl::Span<const uint32_t> positions);
  void Encode(absl::Span<const uint32_t> positions, std::string* out);
  absl::Status Decode(absl::string_view bytes, absl::Span<uint32_t> out,
                      size_t* consumed);

 private:
  // One class as it is coded.
  struct Part {
    uint64_t begin = 0;  // of its slots
    uint64_t end = 0;
    int guess = 0;
    int parameter = 0;
    bool ends = true;  // with an end
    uint64_t bits = 0;
    absl::Span<const uint32_t> coded;  // sent slots, or holes
    std::vector<uint32_t> holes;
  };

  uint64_t Weight(const RowContext::Class& c) const {
    return std::max<uint64_t>(1, c.weight >> shift_);
  }
  bool done() const {
    return positions_left_ == 0 || next_class_ == context_.classes_.size();
  }
  int Guess(uint64_t slots, uint64_t weight) const;
  Part NextPart();

  void SortByClass(absl::Span<const uint32_t> positions);
  Part PlanPart(absl::Span<const uint32_t> sent);
  std::vector<Part> PlanParts(absl::Span<const uint32_t> positions);

  absl::Status DecodeSlots(const Part& part, BitReader* reader,
                           absl::Span<uint32_t> out, size_t* count) const;
  absl::Status DecodeHoles(const Part& part, BitReader* reader,
                           absl::Span<uint32_t> out, size_t* count) const;
  absl::Status ToPositions(absl::Span<uint32_t> slots) const;

  const RowContext& context_;
  int shift_ = 0;
  size_t next_class_ = 0;
  uint64_t weight_left_ = 0;  // of the classes from next_class_ on
  uint64_t positions_left_ = 0;
  // The sender's: slots in the order of the code, and where each class ends.
  std::unique_ptr<uint32_t[]> slots_;
  std::array<size_t, kMaxClasses> slot_ends_{};
};

// Slots have 32 bits and weights 24 (and a few, of classes rounded up to 1):
// with RiceParameterGuess's factor of 77 all of it fits 64 bits.
int RowCode::Guess(uint64_t slots, uint64_t weight) const {
  const uint64_t all = slots * weight_left_;
  const uint64_t expected = std::min(positions_left_ * weight, all - all / 64);
  if (2 * expected <= all) return internal::RiceParameterGuess(all, expected);
  return -std::max(1, internal::RiceParameterGuess(all, all - expected));
}

// The next class, with its guess; the caller subtracts its positions.
RowCode::Part RowCode::NextPart() {
  const RowContext::Class& c = context_.classes_[next_class_++];
  Part part;
  part.begin = uint64_t{c.begin} * context_.columns_;
  part.end = uint64_t{c.end} * context_.columns_;
  part.guess = Guess(part.end - part.begin, Weight(c));
  weight_left_ -= Weight(c);
  return part;
}

void RowCode::SortByClass(absl::Span<const uint32_t> positions) {
  const uint32_t columns = context_.columns_;
  const uint32_t offset = context_.offset_;
  std::array<size_t, kMaxClasses> next{};
  for (const uint32_t p : positions) {
    ++next[context_.rows_[(p + offset) / columns].index];
  }
  size_t sum = 0;
  for (size_t& n : next) sum += std::exchange(n, sum);
  // Positions ascend, so the slots of a class do.
  slots_.reset(new uint32_t[positions.size()]);
  for (const uint32_t p : positions) {
    const RowContext::Row& row = context_.rows_[(p + offset) / columns];
    slots_[next[row.index]++] = row.rank * columns + (p + offset) % columns;
  }
  slot_ends_ = next;
}

// Takes the next class, of which the slots `sent` are.
RowCode::Part RowCode::PlanPart(absl::Span<const uint32_t> sent) {
  Part part = NextPart();
  const uint64_t num_slots = part.end - part.begin;
  const bool by_holes = 2 * sent.size() > num_slots && num_slots > 1;
  part.ends = by_holes || sent.size() < positions_left_;
  positions_left_ -= sent.size();
  part.coded = sent;
  if (by_holes) {
    part.holes.reserve(num_slots - sent.size());
    uint64_t next = part.begin;
    const auto add_until = [&](uint64_t end) {
      for (; next < end; ++next) {
        part.holes.push_back(static_cast<uint32_t>(next));
      }
      ++next;
    };
    for (const uint32_t slot : sent) add_until(slot);
    add_until(part.end);
    part.coded = part.holes;
  }
  const uint64_t behind =
      part.coded.empty() ? num_slots : part.end - part.coded.back() - 1;
  part.bits = std::numeric_limits<uint64_t>::max();
  const int least = by_holes ? 1 : 0;
  const auto consider = [&](int k, int64_t rice_bits) {
    if (k < least || k > kMaxRiceParameter) return;
    const int parameter = by_holes ? -k : k;
    const uint64_t bits = ZigZagOf(parameter, part.guess) + 1 +
                          static_cast<uint64_t>(rice_bits) +
                          (part.ends ? EndBits(behind, k) : 0);
    if (bits >= part.bits) return;
    part.bits = bits;
    part.parameter = parameter;
  };
  if (part.coded.empty()) {
    for (int k = least; k <= kMaxRiceParameter; ++k) consider(k, 0);
    return part;
  }
  const int middle = std::max(
      least, internal::RiceParameterGuess(num_slots, part.coded.size()));
  int64_t bits[3];
  internal::RiceBitsAround(part.coded, static_cast<uint32_t>(part.begin),
                           middle, bits);
  for (int j = 0; j < 3; ++j) consider(middle - 1 + j, bits[j]);
  return part;
}

std::vector<RowCode::Part> RowCode::PlanParts(
    absl::Span<const uint32_t> positions) {
  SortByClass(positions);
  std::vector<Part> parts;
  parts.reserve(context_.classes_.size());
  size_t begin = 0;
  while (!done()) {
    const size_t end = slot_ends_[next_class_];
    parts.push_back(
        PlanPart(absl::MakeConstSpan(slots_.get() + begin, end - begin)));
    begin = end;
  }
  RV_CHECK_EQ(positions_left_, 0u);
  return parts;
}

int64_t RowCode::EncodedBytes(absl::Span<const uint32_t> positions) {
  uint64_t bits = 0;
  for (const Part& part : PlanParts(positions)) bits += part.bits;
  return static_cast<int64_t>((bits + 7) / 8);
}

void RowCode::Encode(absl::Span<const uint32_t> positions, std::string* out) {
  const std::vector<Part> parts = PlanParts(positions);
  uint64_t bits = 0;
  for (const Part& part : parts) bits += part.bits;
  const size_t start = out->size();
  out->resize(start + (bits + 7) / 8 + BitPacker::kSlack);
  BitPacker packer(out->data() + start);
  for (const Part& part : parts) {
    packer.PutOnes(ZigZagOf(part.parameter, part.guess));
    packer.Put(0, 1);
    const int k = std::abs(part.parameter);
    internal::PutRice(part.coded, static_cast<uint32_t>(part.begin), k,
                      &packer);
    if (!part.ends) continue;
    const uint64_t next =
        part.coded.empty() ? part.begin : uint64_t{part.coded.back()} + 1;
    packer.PutOnes(EndBits(part.end - next, k));
  }
  out->resize(static_cast<size_t>(packer.Finish() - out->data()));
  RV_CHECK_EQ(out->size() - start, (bits + 7) / 8);
}

namespace {

// Slots of [begin, end), Rice-coded one after the other, until the end.
class SlotReader {
 public:
  SlotReader(int k, uint64_t begin, uint64_t end, BitReader* reader)
      : k_(k), next_(begin), end_(end), reader_(reader) {}

  // Decodes up to out.size() > 0 slots; fewer, when the end comes first.
  absl::Status Read(absl::Span<uint32_t> out, size_t* count) {
    *count = 0;
    while (*count < out.size()) {
      const size_t got =
          internal::GetRice(k_, next_, end_, out.subspan(*count), reader_);
      *count += got;
      if (got > 0) next_ = uint64_t{out[*count - 1]} + 1;
      if (*count == out.size() || next_ == end_) break;
      const uint64_t end_ones = EndBits(end_ - next_, k_);
      uint64_t quotient = 0;
      uint32_t low = 0;
      if (!reader_->ReadTruncatedUnary(end_ones, &quotient)) return CutOff();
      if (quotient == end_ones) break;
      if (!reader_->Read(k_, &low)) return CutOff();
      const uint64_t slot = next_ + (quotient << k_ | low);
      if (slot >= end_) {
        return absl::InvalidArgumentError(
            absl::StrFormat("slot %u of a class that ends at %u", slot, end_));
      }
      out[(*count)++] = static_cast<uint32_t>(slot);
      next_ = slot + 1;
    }
    return absl::OkStatus();
  }

  static absl::Status CutOff() {
    return absl::InvalidArgumentError("code of rows is cut off");
  }

 private:
  const int k_;
  uint64_t next_;
  const uint64_t end_;
  BitReader* const reader_;
};

}  // namespace

absl::Status RowCode::DecodeSlots(const Part& part, BitReader* reader,
                                  absl::Span<uint32_t> out,
                                  size_t* count) const {
  return SlotReader(part.parameter, part.begin, part.end, reader)
      .Read(out, count);
}

// Fills in what lies between holes.
absl::Status RowCode::DecodeHoles(const Part& part, BitReader* reader,
                                  absl::Span<uint32_t> out,
                                  size_t* count) const {
  SlotReader slots(-part.parameter, part.begin, part.end, reader);
  *count = 0;
  uint64_t next = part.begin;
  const auto fill_until = [&](uint64_t end) {
    if (end - next > out.size() - *count) return false;
    while (next < end) out[(*count)++] = static_cast<uint32_t>(next++);
    ++next;
    return true;
  };
  std::array<uint32_t, 256> holes;
  for (size_t num_holes = holes.size(); num_holes == holes.size();) {
    RV_RETURN_IF_ERROR(slots.Read(absl::MakeSpan(holes), &num_holes));
    bool fits = true;
    for (size_t i = 0; i < num_holes && fits; ++i) fits = fill_until(holes[i]);
    if (fits && num_holes < holes.size()) fits = fill_until(part.end);
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "a class has more than the %u positions that are left", out.size()));
    }
  }
  return absl::OkStatus();
}

absl::Status RowCode::ToPositions(absl::Span<uint32_t> slots) const {
  const uint32_t columns = context_.columns_;
  const uint64_t offset = context_.offset_;
  for (uint32_t& slot : slots) {
    const uint64_t at =
        uint64_t{context_.order_[slot / columns]} * columns + slot % columns;
    // What is before the first element wraps around.
    const uint64_t position = at - offset;
    if (position >= static_cast<uint64_t>(context_.size_)) [[unlikely]] {
      return absl::OutOfRangeError(
          absl::StrFormat("position %d in a range of %d elements",
                          static_cast<int64_t>(position), context_.size_));
    }
    slot = static_cast<uint32_t>(position);
  }
  return absl::OkStatus();
}

absl::Status RowCode::Decode(absl::string_view bytes, absl::Span<uint32_t> out,
                             size_t* consumed) {
  if (out.size() > static_cast<uint64_t>(context_.size_)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%u positions announced in a range of %d elements",
                        out.size(), context_.size_));
  }
  BitReader reader(bytes);
  absl::Span<uint32_t> rest = out;
  while (!done()) {
    Part part = NextPart();
    uint64_t zigzag = 0;
    if (!reader.ReadTruncatedUnary(kMaxZigZag, &zigzag)) {
      return SlotReader::CutOff();
    }
    part.parameter =
        part.guess + static_cast<int>(UnZigZag(static_cast<int64_t>(zigzag)));
    if (std::abs(part.parameter) > kMaxRiceParameter) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "parameter of a class is %d; allowed: %d to %d", part.parameter,
          -kMaxRiceParameter, kMaxRiceParameter));
    }
    size_t count = 0;
    RV_RETURN_IF_ERROR(part.parameter < 0
                           ? DecodeHoles(part, &reader, rest, &count)
                           : DecodeSlots(part, &reader, rest, &count));
    RV_RETURN_IF_ERROR(ToPositions(rest.first(count)));
    rest.remove_prefix(count);
    positions_left_ = rest.size();
  }
  if (!rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%u positions announced, %u found", out.size(),
                        out.size() - rest.size()));
  }
  if (!reader.Finish(consumed)) {
    return absl::InvalidArgumentError("padding after the rows is not zero");
  }
  if (!std::is_sorted(out.begin(), out.end())) {
    SortPositions(out, context_.size_);
  }
  return absl::OkStatus();
}

RowContext::RowContext(int64_t size, int64_t columns, int64_t offset)
    : size_(size),
      columns_(static_cast<uint32_t>(columns)),
      offset_(static_cast<uint32_t>(offset)) {
  RV_CHECK(size >= 0 && columns > 0 && offset >= 0 && offset < columns)
      << size << " elements, " << columns << " columns, offset " << offset;
  const int64_t num_rows = (size + offset + columns - 1) / columns;
  RV_CHECK(columns <= int64_t{0xFFFFFFFF} &&
           num_rows * columns <= int64_t{0xFFFFFFFF})
      << num_rows << " rows of " << columns;
  counts_.resize(static_cast<size_t>(num_rows), 0);
  Rebuild();
}

void RowContext::Update(absl::Span<const uint32_t> positions) {
  RV_CHECK(positions.empty() || positions.back() < size_);
  for (uint32_t& c : counts_) {
    c -= (c + (1u << kDecayLog2) - 1) >> kDecayLog2;
  }
  for (size_t i = 0; i < positions.size();) {
    const uint32_t row = (positions[i] + offset_) / columns_;
    const uint64_t end = (uint64_t{row} + 1) * columns_ - offset_;
    const size_t first = i;
    while (i < positions.size() && positions[i] < end) ++i;
    const uint64_t count = counts_[row] + uint64_t{i - first} * kUnit;
    counts_[row] = static_cast<uint32_t>(std::min<uint64_t>(count, kMaxCount));
  }
  ++version_;
  Rebuild();
}

absl::Status RowContext::set_state(State state) {
  if (state.counts.size() != counts_.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("counts of %u rows for a matrix of %u",
                        state.counts.size(), counts_.size()));
  }
  for (size_t row = 0; row < state.counts.size(); ++row) {
    if (state.counts[row] > kMaxCount) {
      return absl::InvalidArgumentError(
          absl::StrFormat("count of row %u is %u; allowed: up to %u", row,
                          state.counts[row], kMaxCount));
    }
  }
  version_ = state.version;
  counts_ = std::move(state.counts);
  Rebuild();
  return absl::OkStatus();
}

// A counting sort by class, the highest first.
void RowContext::Rebuild() {
  const size_t num_rows = counts_.size();
  rows_.resize(num_rows);
  order_.resize(num_rows);
  std::array<uint32_t, kMaxClasses> sizes{};
  std::array<uint64_t, kMaxClasses> weights{};
  for (size_t row = 0; row < num_rows; ++row) {
    const size_t c =
        kMaxClasses - 1 - static_cast<size_t>(ClassOf(counts_[row]));
    rows_[row].index = static_cast<uint8_t>(c);
    ++sizes[c];
    weights[c] += uint64_t{counts_[row]} + kPrior;
  }
  classes_.clear();
  std::array<uint32_t, kMaxClasses> next{};
  std::array<uint8_t, kMaxClasses> index{};
  uint32_t rank = 0;
  for (size_t c = 0; c < kMaxClasses; ++c) {
    next[c] = rank;
    index[c] = static_cast<uint8_t>(classes_.size());
    if (sizes[c] == 0) continue;
    classes_.push_back({rank, rank + sizes[c], weights[c]});
    rank += sizes[c];
  }
  for (size_t row = 0; row < num_rows; ++row) {
    const uint8_t c = rows_[row].index;
    order_[next[c]] = static_cast<uint32_t>(row);
    rows_[row] = {next[c]++, index[c]};
  }
}

int64_t RowCodeSize(const RowContext& context,
                    absl::Span<const uint32_t> positions) {
  return RowCode(context, positions.size()).EncodedBytes(positions);
}

void AppendRows(const RowContext& context, absl::Span<const uint32_t> positions,
                std::string* out) {
  RowCode(context, positions.size()).Encode(positions, out);
}

absl::Status DecodeRows(const RowContext& context, absl::string_view bytes,
                        absl::Span<uint32_t> out, size_t* consumed) {
  return RowCode(context, out.size()).Decode(bytes, out, consumed);
}

}  // namespace rivulet
