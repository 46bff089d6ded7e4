// The known name that an unknown one was probably meant to be, for messages.

#ifndef RIVULET_COMMON_BASE_NEAREST_NAME_H_
#define RIVULET_COMMON_BASE_NEAREST_NAME_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rivulet {

// Levenshtein distance: insertions, deletions and substitutions from a to b.
size_t EditDistance(absl::string_view a, absl::string_view b);

// The candidate with the fewest insertions, deletions and substitutions from
// `name`, the first of several; empty when there are no candidates.
std::string NearestName(absl::string_view name,
                        absl::Span<const std::string> candidates);

}  // namespace rivulet

#endif  // RIVULET_COMMON_BASE_NEAREST_NAME_H_
