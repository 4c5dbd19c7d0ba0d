#pragma once

// Pictures that Graphviz draws.

#include <string>

namespace torchtap::views::trace::detail {

/// Runs Graphviz' `dot` on `source` and returns what it draws; nothing if that takes longer than `seconds`.
/// `format` is one of its output formats ("svg"). Throws `c10::Error` that begins with `where` if `dot` is
/// not installed or fails.
std::string run_graphviz(const std::string& source, const std::string& format, double seconds,
                         const std::string& where);

}  // namespace torchtap::views::trace::detail
