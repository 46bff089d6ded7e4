// Positions in a matrix whose rows are sent very unequally often, as those of
// an embedding or a softmax layer are. Both ends count what was sent of each
// row; rows of like counts form a class, and the positions of each class are
// Rice-coded by themselves, with a parameter of their own. That saves what an
// arithmetic coder with a context for each row would (2 to 3 bits a position
// where rows follow Zipf's law), at Rice's speed, and costs a few bits where
// rows are alike.
//
//   RowContext context(size, columns);       // at both ends
//   AppendRows(context, positions, &bytes);  // at the sender
//   DecodeRows(context, bytes, absl::MakeSpan(positions), &consumed);
//   context.Update(positions);               // at both, once it is agreed on
//
// The code. Elements count from the matrix' first whole row, so a range of a
// larger one may begin within a row: element p lies in row (p + offset) /
// columns. Rows are put in order by class, the highest first, then by number;
// a class of r rows has r * columns slots, in that order. For each class that
// has rows, while positions are left, one bit string continues with
//
// - its parameter P, |P| <= 31, as the zigzag code (bit_io.h) of P less a
// guess,
//   in unary: so many ones and a zero;
// - for P >= 0, Rice codes of its sent slots with k = P (rice.h); for P < 0, of
//   the slots that are not sent, with k = -P;
// - unless P >= 0 and these were the last positions, an end: with `left` slots
//   behind the last one coded, nothing if that is 0, otherwise
//   ((left - 1) >> k) + 1 ones, which are no gap.
//
// The number of positions is told by whoever calls. Padding is zero.
//
// The guess. A class has the weight W = the sum of c + 64 over its rows' counts
// c; weights are halved until all of them together have 24 bits, and are 1 at
// least. With n positions and the weight T left for this class and those behind
// it, n W / T of its S slots are expected to be sent, at most 63/64 of them.
// With m = S / that, P is floor(log2(0.9625 m)) at density 1/2 and below;
// above, -P is at least 1 and follows in the same way from the slots not sent.
//
// The counts. With every message each count c becomes c - ceil(c / 128) and 256
// more for each position sent in its row, at most 2^31. A row's class is 0
// where c < 128; above, two classes an octave begin at 2^j and 1.5 * 2^j.

#ifndef RIVULET_COMPRESSION_ROW_CODER_H_
#define RIVULET_COMPRESSION_ROW_CODER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rivulet {

// What both ends know of one matrix. Equal sequences of updates give equal
// contexts. Thread-compatible; needs 16 bytes a row.
class RowContext {
 public:
  // What a checkpoint holds.
  struct State {
    uint64_t version = 0;
    std::vector<uint32_t> counts;  // of each row, at most kMaxCount
  };
  static constexpr uint32_t kMaxCount = 1u << 31;

  // `size` elements in rows of `columns`, less the first `offset` elements of
  // the first row, which belong to somebody else. 0 <= offset < columns, and
  // the rows they touch have at most 2^32 - 1 elements in all.
  RowContext(int64_t size, int64_t columns, int64_t offset = 0);

  // Counts a message: strictly increasing positions below size(). Takes time
  // for each row, a few nanoseconds, besides that for the positions.
  void Update(absl::Span<const uint32_t> positions);

  int64_t size() const { return size_; }
  int64_t columns() const { return columns_; }
  int64_t rows() const { return static_cast<int64_t>(counts_.size()); }
  // Messages counted so far. Two contexts of one matrix that counted the same
  // messages are equal; a decoder that has another version than the encoder
  // decodes nonsense.
  uint64_t version() const { return version_; }

  State state() const { return {version_, counts_}; }
  // Continues from there. InvalidArgument, and nothing changes, when `state` is
  // of another number of rows or has a count beyond kMaxCount.
  absl::Status set_state(State state);

 private:
  friend class RowCode;

  // Where a row is in the order of the code, and its class there.
  struct Row {
    uint32_t rank = 0;
    uint8_t index = 0;  // in classes_
  };
  // Rows of one class: ranks [begin, end) of order_.
  struct Class {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t weight = 0;  // in proportion to the positions expected
  };

  void Rebuild();

  int64_t size_ = 0;
  uint32_t columns_ = 1;
  uint32_t offset_ = 0;
  uint64_t version_ = 0;
  std::vector<uint32_t> counts_;  // by row
  // What follows from the counts:
  std::vector<Class> classes_;  // that have rows, in order
  std::vector<Row> rows_;
  std::vector<uint32_t> order_;  // rows by rank
};

// Bytes that AppendRows would append.
int64_t RowCodeSize(const RowContext& context,
                    absl::Span<const uint32_t> positions);

// Appends the code of strictly increasing positions below context.size().
void AppendRows(const RowContext& context, absl::Span<const uint32_t> positions,
                std::string* out);

// Decodes out.size() positions, strictly increasing, from the front of `bytes`
// by a context equal to the encoder's; *consumed is the number of bytes used.
// InvalidArgument when the bytes end first or have too few or too many
// positions, or when padding is not zero; OutOfRange when a position is not of
// the range. Takes time in proportion to the bytes, the positions and the
// classes, and memory to the positions. Rows that are sent nearly whole cost
// less than a bit a position: callers bound the number of positions by what
// else must follow before they take memory for it. After an error `out` holds
// anything.
absl::Status DecodeRows(const RowContext& context, absl::string_view bytes,
                        absl::Span<uint32_t> out, size_t* consumed);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_ROW_CODER_H_
