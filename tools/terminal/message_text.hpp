#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/units.hpp>

/// Formats the command's output: text from files, and the library's errors for users of a shell.
namespace torchtap::tools {

using views::text::counted;
using views::text::printable;

/// The candidate nearest to `word`; "" if there is none nearby.
std::string meant(const std::string& word, const std::vector<std::string>& candidates);

/// `; did you mean "list"?`, or "".
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

/// A TorchScript error in two parts.
struct ScriptError {
  std::string cause;
  std::string traceback;  ///< "" for other errors
};
ScriptError split(const std::string& message);

/// The text of an error: first the cause and the remedy, then TorchScript's traceback if there is one. Print
/// it after "torchtap: ".
std::string explain(const std::exception& error);

}  // namespace torchtap::tools
