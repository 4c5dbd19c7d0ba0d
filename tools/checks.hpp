#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <limits>

/// What values of options have to be. Errors say it in plain words.
namespace torchtap::tools {

/// A whole number in decimal digits from `least` to `most`; nothing is rounded, wrapped or cut off.
CLI::Validator whole_number(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                            std::uint64_t most = std::numeric_limits<std::int64_t>::max());
/// A number from 0 on, infinity included.
CLI::Validator tolerance();
/// The name of something that is to be written: not empty.
CLI::Validator place();

/// No option of `command` takes another one of its options for a value, as in "--save --overwrite".
void guard_values(CLI::App& command);

/// "--names", "-h": how the options of `command` are called.
std::vector<std::string> option_names(const CLI::App& command);

}  // namespace torchtap::tools
