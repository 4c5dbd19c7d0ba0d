#pragma once

// Files that Graphviz draws.

#include <string>

namespace torchtap::views::trace::detail {

/// Runs Graphviz' `dot` on `source` and writes what it draws to `file`, which is complete or not there.
/// `format` is one of its output formats ("svg"). Returns false if that takes longer than `seconds`. Throws
/// `c10::Error` that begins with `where` if `dot` is not installed or fails, or if the file cannot be
/// written.
bool run_graphviz(const std::string& source, const std::string& format, const std::string& file,
                  double seconds, const std::string& where);

/// Writes `text` to `file`, likewise.
void write_text(const std::string& text, const std::string& file, const std::string& where);

}  // namespace torchtap::views::trace::detail
