#pragma once

// Errors and helpers for their messages.
//
// Every error that torchtap raises is one of LibTorch's exceptions (`c10::ValueError`, `c10::IndexError`,
// `c10::TypeError`, all of them `c10::Error`), so that callers catch one family and can show
// `what_without_backtrace()`. A message names the call, the expectation, the value that was given and the
// remedy.

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// The number of letters to insert, remove or replace to turn `a` into `b`.
TORCHTAP_API std::size_t edit_distance(const std::string& a, const std::string& b);

/// Up to `most` entries of `candidates` that resemble `wanted`, best first, for errors that suggest names.
///
/// Compares by edit distance, on the whole and on the last dotted component.
TORCHTAP_API std::vector<std::string> nearest(const std::string& wanted,
                                              const std::vector<std::string>& candidates,
                                              std::size_t most = 5);

/// `"a", "b" and "c"`, for messages; `(none)` for an empty list.
TORCHTAP_API std::string quoted(const std::vector<std::string>& names);

/// The first line of what an exception says, without LibTorch's backtrace.
TORCHTAP_API std::string first_line(const std::exception& error);

}  // namespace torchtap::base
