#pragma once

#include <CLI/App.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

/// Validators of option values.
namespace torchtap::tools {

/// A whole number in decimal digits from `least` to `most`. Nothing is rounded, wrapped or truncated.
CLI::Validator whole_number(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                            std::uint64_t most = std::numeric_limits<std::int64_t>::max());
/// A number of at least 0, infinity included.
CLI::Validator tolerance();
/// A name for output: not empty.
CLI::Validator place();

/// Adds --overwrite, which means the same in every command that writes.
CLI::Option* add_overwrite(CLI::App& command, bool& overwrite);
/// Throws `c10::ValueError` if something is at `path` that may not be replaced. An empty folder is free, and
/// so is a target that is written in place, such as /dev/stdout.
void check_free(const std::string& path, bool overwrite);

/// Rejects a value that is itself an option of `command`, as in "--save --overwrite".
void guard_values(CLI::App& command);

/// The names of `command`'s options, such as "--names" and "-h".
std::vector<std::string> option_names(const CLI::App& command);

}  // namespace torchtap::tools
