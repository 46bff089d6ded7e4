#include "compression/bench/published_models.h"

#include "common/base/check.h"

namespace rivulet {
namespace {

constexpr int64_t kImageNetClasses = 1000;
constexpr int64_t kCifarClasses = 10;

class Builder {
 public:
  explicit Builder(std::string name) { model_.name = std::move(name); }

  void Weight(int64_t size) { model_.tensors.push_back({size, false}); }
  void Small(int64_t size) { model_.tensors.push_back({size, true}); }
  void WithBias(int64_t weights, int64_t outputs) {
    Weight(weights);
    Small(outputs);
  }
  // A convolution without bias and its batch normalization.
  void ConvNorm(int64_t in, int64_t out, int64_t kernel) {
    Weight(in * out * kernel * kernel);
    Small(out);
    Small(out);
  }
  PublishedModel Take() { return std::move(model_); }

 private:
  PublishedModel model_;
};

}  // namespace

int64_t PublishedModel::num_parameters() const {
  int64_t sum = 0;
  for (const PublishedTensor& t : tensors) sum += t.size;
  return sum;
}

int64_t PublishedModel::num_small() const {
  int64_t sum = 0;
  for (const PublishedTensor& t : tensors) sum += t.small ? t.size : 0;
  return sum;
}

PublishedModel AlexNet() {
  Builder b("AlexNet");
  b.WithBias(96 * 3 * 11 * 11, 96);
  b.WithBias(256 * 48 * 5 * 5, 256);  // two groups, as the next but one
  b.WithBias(384 * 256 * 3 * 3, 384);
  b.WithBias(384 * 192 * 3 * 3, 384);
  b.WithBias(256 * 192 * 3 * 3, 256);
  b.WithBias(256 * 6 * 6 * 4096, 4096);
  b.WithBias(4096 * 4096, 4096);
  b.WithBias(4096 * kImageNetClasses, kImageNetClasses);
  return b.Take();
}

PublishedModel ResNet50() {
  Builder b("ResNet-50");
  b.ConvNorm(3, 64, 7);
  constexpr int kBlocks[] = {3, 4, 6, 3};
  int64_t in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      b.ConvNorm(in, width, 1);
      b.ConvNorm(width, width, 3);
      b.ConvNorm(width, 4 * width, 1);
      if (block == 0) b.ConvNorm(in, 4 * width, 1);  // the shortcut
      in = 4 * width;
    }
  }
  b.WithBias(in * kImageNetClasses, kImageNetClasses);
  return b.Take();
}

PublishedModel PtbLstm() {
  constexpr int64_t kWords = 10000;
  constexpr int64_t kUnits = 1500;
  Builder b("PTB LSTM");
  b.Weight(kWords * kUnits);
  for (int layer = 0; layer < 2; ++layer) {
    b.Weight(4 * kUnits * kUnits);  // from the input
    b.Weight(4 * kUnits * kUnits);  // from the state before
    b.Small(4 * kUnits);
    b.Small(4 * kUnits);
  }
  b.Small(kWords);
  return b.Take();
}

PublishedModel CifarResNet(int depth) {
  RV_CHECK(depth >= 8 && depth % 6 == 2) << depth;
  Builder b("ResNet-" + std::to_string(depth));
  b.ConvNorm(3, 16, 3);
  int64_t in = 16;
  for (int stage = 0; stage < 3; ++stage) {
    const int64_t width = int64_t{16} << stage;
    for (int block = 0; block < (depth - 2) / 6; ++block) {
      b.ConvNorm(in, width, 3);  // shortcuts have no parameters
      b.ConvNorm(width, width, 3);
      in = width;
    }
  }
  b.WithBias(in * kCifarClasses, kCifarClasses);
  return b.Take();
}

double DgcPushBytes(const PublishedModel& model, double density) {
  const auto small = static_cast<double>(model.num_small());
  const double large = static_cast<double>(model.num_parameters()) - small;
  return large * density * (32 + 16) / 8 + small * 4;
}

}  // namespace rivulet
