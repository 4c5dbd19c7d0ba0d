#pragma once

/// Defines the syntax of the text that `parse` and `restore` read.

#include <string>
#include <vector>

namespace torchtap::statistics::detail {

/// `expression := word { ":" argument } [ "(" expression { "," expression } ")" ]`, with spaces around each.
struct Expression {
  std::string word;                    ///< "histogram"
  std::vector<std::string> arguments;  ///< "64", "-4", "4"
  std::vector<Expression> parts;       ///< what is in parentheses; never empty if there are any

  /// As recipes are written: "Series(Mean, Max)".
  std::string text() const;
};

/// The expressions of a text, which are separated by commas. Words and arguments may be empty. Throws
/// `c10::ValueError` that begins with `call` and names the place if parentheses do not match.
std::vector<Expression> read_expressions(const char* call, const std::string& text);

/// "Mean, Max".
std::string text_of(const std::vector<Expression>& expressions);

}  // namespace torchtap::statistics::detail
