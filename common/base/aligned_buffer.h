// Memory for long arrays of numbers.

#ifndef RIVULET_COMMON_BASE_ALIGNED_BUFFER_H_
#define RIVULET_COMMON_BASE_ALIGNED_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "absl/types/span.h"

namespace rivulet {

// A fixed number of zero-initialized values on a 64-byte boundary, a cache line
// and the widest vector register; large ones are on huge pages where the system
// has them. Owns its memory, which a move hands over; thread-compatible.
template <typename T>
class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t size) : size_(size) {
    if (size == 0) return;
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    data_ = std::unique_ptr<T, Deleter>(
        static_cast<T*>(::operator new(bytes, std::align_val_t{alignment})),
        Deleter{alignment});
#ifdef MADV_HUGEPAGE
    // A sweep then meets a new page once in 2 MiB. Where that is refused, it
    // only is slower.
    if (alignment == kHugePage) madvise(data_.get(), bytes, MADV_HUGEPAGE);
#endif
    std::memset(static_cast<void*>(data_.get()), 0, bytes);
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
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
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  struct Deleter {
    std::size_t alignment = kAlignment;
    void operator()(T* p) const {
      ::operator delete(static_cast<void*>(p), std::align_val_t{alignment});
    }
  };
  std::unique_ptr<T, Deleter> data_;
  int64_t size_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_ALIGNED_BUFFER_H_
