#pragma once

// Errors and the words of their messages.
//
// Every error that torchtap raises is one of LibTorch's exceptions (`c10::ValueError`, `c10::IndexError`,
// `c10::TypeError`, all of them `c10::Error`), so that callers catch one family and can show
// `what_without_backtrace()`. A message names the call, what was expected, what arrived and what to do.

#include <c10/util/Exception.h>

#include <string>
#include <torchtap/core/api.hpp>
#include <vector>

namespace torchtap::core::detail {

/// How many letters have to be inserted, removed or replaced to make `b` of `a`.
TORCHTAP_API std::size_t edit_distance(const std::string& a, const std::string& b);

/// The entries of `candidates` that look most like `wanted`, best first, at most `most` of them.
///
/// Used by errors that list what the caller may have meant. Looks by edit distance on the whole and on the
/// last dotted component.
TORCHTAP_API std::vector<std::string> nearest(const std::string& wanted,
                                              const std::vector<std::string>& candidates,
                                              std::size_t most = 5);

/// `"a", "b" and "c"`, for messages; `(none)` for an empty list.
TORCHTAP_API std::string quoted(const std::vector<std::string>& names);

}  // namespace torchtap::core::detail
