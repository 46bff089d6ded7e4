// Lists in messages, cut to a length that a person reads.

#ifndef RIVULET_COMMON_BASE_JOIN_FIRST_H_
#define RIVULET_COMMON_BASE_JOIN_FIRST_H_

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace rivulet {

// The first `most` items, and how many there are beside: "0, 1, 2 and 5 more".
template <typename Items>
std::string JoinFirst(const Items& items, size_t most,
                      absl::string_view separator) {
  const size_t named = std::min<size_t>(items.size(), most);
  const auto end = items.begin() + static_cast<std::ptrdiff_t>(named);
  return absl::StrCat(absl::StrJoin(items.begin(), end, separator),
                      named < items.size()
                          ? absl::StrCat(" and ", items.size() - named, " more")
                          : "");
}

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_JOIN_FIRST_H_
