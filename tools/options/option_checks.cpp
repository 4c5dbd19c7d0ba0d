#include "option_checks.hpp"

#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <torchtap/base/numbers.hpp>
#include <torchtap/base/write_file.hpp>

namespace torchtap::tools {
namespace {

std::string range(std::int64_t least, std::uint64_t most) {
  constexpr auto kNoLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kNoMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::string text = "expected a whole number";
  if (least != kNoLeast) text += " from " + std::to_string(least);
  if (most < kNoMost) return text + " to " + std::to_string(most);
  return least != kNoLeast ? text + " up" : text;
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::uint64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    const std::string wrong = range(least, most) + ", got \"" + text + "\"";
    const std::string digits = text.substr(text.rfind('+', 0) == 0 ? 1 : 0);
    const char* end = digits.data() + digits.size();
    std::from_chars_result result{};
    bool fits = false;
    if (digits.rfind('-', 0) == 0) {
      std::int64_t value = 0;
      result = std::from_chars(digits.data(), end, value);
      fits = value >= least;
      text = std::to_string(value);  // CLI11 would read "010" as octal 8
    } else {
      std::uint64_t value = 0;
      result = std::from_chars(digits.data(), end, value);
      fits = value <= most && (least < 0 || value >= static_cast<std::uint64_t>(least));
      text = std::to_string(value);
    }
    if (result.ec == std::errc::result_out_of_range) return wrong + ", which is too large";
    return result.ec == std::errc() && result.ptr == end && fits ? "" : wrong;
  };
  return CLI::Validator(check, "");
}

CLI::Validator tolerance() {
  const auto check = [](std::string& text) -> std::string {
    const auto value = base::number_of(text);
    return value && *value >= 0 ? "" : "expected a number from 0 up, got \"" + text + "\"";
  };
  return CLI::Validator(check, "");
}

CLI::Validator place() {
  return CLI::Validator([](std::string& text) { return text.empty() ? "the name is empty" : ""; }, "");
}

CLI::Option* add_overwrite(CLI::App& command, bool& overwrite) {
  return command.add_flag("--overwrite", overwrite, "Replace what is there; without this, that is an error");
}

void check_free(const std::string& path, bool overwrite) {
  namespace fs = std::filesystem;
  std::error_code error;
  TORCH_CHECK_VALUE(overwrite || !fs::exists(path, error) || base::written_in_place(path) ||
                        (fs::is_directory(path, error) && fs::is_empty(path, error)),
                    "\"", path, "\" already exists; --overwrite replaces it.");
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

void guard_values(CLI::App& command) {
  const auto names = option_names(command);
  const auto check = [names](std::string& text) -> std::string {
    if (std::find(names.begin(), names.end(), text) == names.end()) return "";
    return "a value is missing; \"" + text + "\" is an option (a file of that name is \"./" + text + "\")";
  };
  for (CLI::Option* option : command.get_options()) {
    if (!option->get_positional() && option->get_items_expected_max() > 0) {
      option->check(CLI::Validator(check, ""));
    }
  }
}

}  // namespace torchtap::tools
