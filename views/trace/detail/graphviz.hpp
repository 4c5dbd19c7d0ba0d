#pragma once

// Files that Graphviz draws.

#include <string>

namespace torchtap::views::trace::detail {

/// Runs Graphviz' `dot` on `source` and writes what it draws to `file`, which is complete or not there.
/// `format` is one of its output formats ("svg"). Throws `c10::Error` that begins with `where` if `dot` is
/// not installed, fails, or takes longer than `seconds`, or if the file cannot be written.
void run_graphviz(const std::string& source, const std::string& format, const std::string& file,
                  double seconds, const std::string& where);

/// Writes `text` to `file`, likewise.
void write_text(const std::string& text, const std::string& file, const std::string& where);

}  // namespace torchtap::views::trace::detail
