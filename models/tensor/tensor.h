// Sizes of image tensors and the memory behind them. There is no tensor class:
// operations take a shape when they are made and plain pointers when they run,
// so that one block of memory serves every step and batch size.

#ifndef RIVULET_MODELS_TENSOR_TENSOR_H_
#define RIVULET_MODELS_TENSOR_TENSOR_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace rivulet {

// [batch, channels, height, width]; every size is at least 1.
struct ActivationShape {
  int64_t n = 1;
  int64_t c = 1;
  int64_t h = 1;
  int64_t w = 1;

  int64_t num_elements() const { return n * c * h * w; }
  int64_t pixels() const { return h * w; }
  bool IsValid() const { return n >= 1 && c >= 1 && h >= 1 && w >= 1; }
  std::string ToString() const {
    return absl::StrCat("[", n, ", ", c, ", ", h, ", ", w, "]");
  }
};

inline bool operator==(const ActivationShape& a, const ActivationShape& b) {
  return a.n == b.n && a.c == b.c && a.h == b.h && a.w == b.w;
}

// A fixed number of zero-initialized values on a 64-byte boundary, a cache line
// and the widest vector register. Owns its memory; thread-compatible.
template <typename T>
class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t size) : size_(size) {
    if (size == 0) return;
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
    data_.reset(
        static_cast<T*>(::operator new(bytes, std::align_val_t{kAlignment})));
    std::memset(static_cast<void*>(data_.get()), 0, bytes);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  absl::Span<T> span() {
    return absl::MakeSpan(data_.get(), static_cast<std::size_t>(size_));
  }
  absl::Span<const T> span() const {
    return absl::MakeConstSpan(data_.get(), static_cast<std::size_t>(size_));
  }

 private:
  struct Deleter {
    void operator()(T* p) const {
      ::operator delete(static_cast<void*>(p), std::align_val_t{kAlignment});
    }
  };
  std::unique_ptr<T, Deleter> data_;
  int64_t size_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_MODELS_TENSOR_TENSOR_H_
