// RV_CHECK: invariants of our own code. A failed check prints where and why,
// and aborts. Never use it on bytes from a socket, a file or a config: those
// are absl::Status.
//
//   RV_CHECK(!parts.empty()) << "partition of " << name;
//   RV_CHECK_EQ(gradient.size(), size_);

#ifndef RIVULET_COMMON_BASE_CHECK_H_
#define RIVULET_COMMON_BASE_CHECK_H_

#include <sstream>

namespace rivulet::internal {

// Collects the message of a failed check and aborts in its destructor.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Makes `cond ? void : stream` type-check.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace rivulet::internal

#define RV_CHECK(condition)                                                   \
  (condition)                                                                 \
      ? (void)0                                                               \
      : ::rivulet::internal::Voidify() &                                      \
            ::rivulet::internal::CheckFailure(__FILE__, __LINE__, #condition) \
                .stream()

#define RV_CHECK_OP_(a, op, b) \
  RV_CHECK((a)op(b)) << "(" << (a) << " vs. " << (b) << ") "
#define RV_CHECK_EQ(a, b) RV_CHECK_OP_(a, ==, b)
#define RV_CHECK_NE(a, b) RV_CHECK_OP_(a, !=, b)
#define RV_CHECK_LT(a, b) RV_CHECK_OP_(a, <, b)
#define RV_CHECK_LE(a, b) RV_CHECK_OP_(a, <=, b)
#define RV_CHECK_GT(a, b) RV_CHECK_OP_(a, >, b)
#define RV_CHECK_GE(a, b) RV_CHECK_OP_(a, >=, b)

#endif  // RIVULET_COMMON_BASE_CHECK_H_
