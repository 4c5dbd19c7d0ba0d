#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

/// The words of the command: what it prints of files, and the library's errors for people at a shell.
namespace torchtap::tools {

/// `text` with everything escaped that could move the cursor, change colours or reorder what stands beside
/// it: control characters and bytes that are not UTF-8, as `ls` and `git` do ("\033", "\n", "\377"). With
/// `keep_lines`, lines end where they did.
std::string printable(const std::string& text, bool keep_lines = false);

/// "1 module", "2 modules".
std::string counted(std::int64_t number, const std::string& word);

/// The one of `candidates` that was meant by `word`; "" if none is near.
std::string meant(const std::string& word, const std::vector<std::string>& candidates);

/// `; did you mean "list"?`, or nothing.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

/// An error of TorchScript's in two parts.
struct ScriptError {
  std::string cause;
  std::string traceback;  ///< "" for any other error
};
ScriptError split(const std::string& message);

/// What went wrong: first the cause and the remedy, then TorchScript's traceback if there is one. Ready to be
/// printed after "torchtap: ".
std::string explain(const std::exception& error);

}  // namespace torchtap::tools
