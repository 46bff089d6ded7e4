// Writes the seeds of frame_fuzzer: bodies of frames in every layout, for the
// fuzzer's table, and one whole frame.
//
//   make_frame_corpus tests/fuzz/corpus/frame

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "compression/frame.h"
#include "compression/quantizer.h"
#include "compression/selector.h"

namespace rivulet {
namespace {

CompressedTensor Compressed(int64_t size, double density, int bits) {
  RandomStream rng(1, RandomPurpose::kTest, static_cast<uint64_t>(size));
  std::vector<float> values(static_cast<size_t>(size));
  for (float& v : values) v = static_cast<float>(rng.Normal());
  const TensorPlan plan{density, bits};
  CompressedTensor out;
  if (plan.dense()) {
    QuantizeDense(values, plan, {}, &out);
  } else {
    Candidates selected = SelectExact(values, TargetCount(size, density));
    QuantizeSparse(size, plan, {}, &selected, &out);
  }
  return out;
}

std::string Frame(int bits) {
  FrameEncoder encoder;
  encoder.Add(0, Compressed(300, 0.02, bits), 0, 300);
  encoder.Add(3, Compressed(5000, 0.01, bits), 0, 5000);
  encoder.Add(1, Compressed(256, 0.5, bits), 0, 256);
  encoder.Add(2, Compressed(1, 1.0, std::max(bits, 4)), 0, 1);
  return encoder.Finish();
}

// The body of a frame of 128 to 16383 bytes: without version, length, checksum.
std::string BodyOf(const std::string& frame) {
  return frame.substr(3, frame.size() - 3 - 4);
}

std::string DenseAndExact() {
  FrameEncoder encoder;
  encoder.Add(0, Compressed(300, 1.0, 4), 0, 300);
  encoder.AddExact(2, std::vector<float>{1.5f});
  encoder.Add(1, Compressed(256, 1.0, 16), 0, 256);
  return encoder.Finish();
}

// Two groups, of the sparse and of the small segments of the fuzzer's table.
std::string Group() {
  const SegmentTable table({{300, false},
                            {256, true},
                            {1, true},
                            {5000, false},
                            {0, false},
                            {4294967295, false},
                            {40, true}});
  FrameEncoder encoder(&table);
  encoder.Add(0, Compressed(300, 0.02, 1), 0, 300);
  encoder.Add(3, Compressed(5000, 0.01, 1), 0, 5000);
  encoder.Add(1, Compressed(256, 1.0, 8), 0, 256);
  encoder.Add(2, Compressed(1, 1.0, 8), 0, 1);
  encoder.Add(6, Compressed(40, 1.0, 8), 0, 40);
  return encoder.Finish();
}

// One position near the end of the largest segment: long unary runs.
std::string Huge() {
  CompressedTensor tensor;
  tensor.Reset(4294967295, /*is_dense=*/false, ValueCode::kFloat);
  tensor.positions = {2147483648u, 4294967294u};
  tensor.values = {1, -1};
  FrameEncoder encoder;
  encoder.Add(5, tensor, 0, tensor.size);
  const std::string frame = encoder.Finish();
  return frame.substr(2, frame.size() - 2 - 4);  // its length takes one byte
}

int Main(const std::string& folder) {
  const std::pair<const char*, std::string> files[] = {
      {"body_1_bit", BodyOf(Frame(1))},
      {"body_2_bits", BodyOf(Frame(2))},
      {"body_4_bits", BodyOf(Frame(4))},
      {"body_group", BodyOf(Group())},
      {"body_8_bits", BodyOf(Frame(8))},
      {"body_16_bits", BodyOf(Frame(16))},
      {"body_32_bits", BodyOf(Frame(32))},
      {"body_dense_exact", BodyOf(DenseAndExact())},
      {"body_huge_segment", Huge()},
      {"whole_frame", Frame(8)},
  };
  for (const auto& [name, bytes] : files) {
    std::ofstream out(folder + "/" + name, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) {
      std::fprintf(stderr, "cannot write %s/%s\n", folder.c_str(), name);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace rivulet

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  return rivulet::Main(argv[1]);
}
