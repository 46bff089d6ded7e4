// The models on which Deep Gradient Compression's sizes were published, as
// lists of tensors: what accounting and benchmarks need of them. And the
// paper's own way to count (Lin et al., ICLR 2018, tables 2 to 4).
//
// Stateless; thread-safe.

#ifndef RIVULET_COMPRESSION_BENCH_PUBLISHED_MODELS_H_
#define RIVULET_COMPRESSION_BENCH_PUBLISHED_MODELS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rivulet {

struct PublishedTensor {
  int64_t size = 0;
  bool small =
      false;  // a bias or of a normalization: fewer than two dimensions
};

struct PublishedModel {
  std::string name;
  std::vector<PublishedTensor> tensors;

  int64_t num_parameters() const;
  int64_t num_small() const;  // elements of small tensors
};

// Caffe's, with its grouped convolutions: 60,965,224 parameters.
PublishedModel AlexNet();
// torchvision's: 25,557,032 in 161 tensors.
PublishedModel ResNet50();
// Two layers of 1,500 units with two biases each, 10,000 words, the embedding
// tied to the softmax: 51,034,000.
PublishedModel PtbLstm();
// He et al. §4.2, depth = 6 n + 2: 269,722 parameters at 20.
PublishedModel CifarResNet(int depth);

// A push as the paper counts it: `density` of the elements of large tensors
// with a 32-bit value and a 16-bit run length each, small tensors whole in 32
// bits.
double DgcPushBytes(const PublishedModel& model, double density);

}  // namespace rivulet

#endif  // RIVULET_COMPRESSION_BENCH_PUBLISHED_MODELS_H_
