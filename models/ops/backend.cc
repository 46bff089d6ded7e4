#include "models/ops/backend.h"

#include <algorithm>

namespace rivulet {
namespace {

// Calls fn(plain index, image index) for every element.
template <typename Fn>
void ForEachElement(const ActivationShape& s, int64_t block, const Fn& fn) {
  const int64_t blocks = (s.c + block - 1) / block;
  const int64_t pixels = s.pixels();
  int64_t plain = 0;
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t c = 0; c < s.c; ++c) {
      const int64_t slab = (n * blocks + c / block) * pixels * block;
      for (int64_t p = 0; p < pixels; ++p) {
        fn(plain++, slab + p * block + c % block);
      }
    }
  }
}

}  // namespace

template <typename T>
void Backend<T>::Pack(const ActivationShape& shape, const T* plain,
                      T* image) const {
  std::fill_n(image, ImageSize(shape), T{0});
  ForEachElement(shape, channel_block(),
                 [&](int64_t p, int64_t i) { image[i] = plain[p]; });
}

template <typename T>
void Backend<T>::Unpack(const ActivationShape& shape, const T* image,
                        T* plain) const {
  ForEachElement(shape, channel_block(),
                 [&](int64_t p, int64_t i) { plain[p] = image[i]; });
}

template class Backend<float>;
template class Backend<double>;

}  // namespace rivulet
