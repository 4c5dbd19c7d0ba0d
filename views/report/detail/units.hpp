#pragma once

// Numbers with three digits and a unit. `gap` stands between them: "" in tables, " " in sentences.

#include <cstdint>
#include <string>

namespace torchtap::views::report::detail {

/// "576", "9.41k", "11.7M".
std::string amount_text(std::int64_t number, const char* gap = "");
/// "120ms"; with `ascii`, "us" for microseconds.
std::string duration_text(double seconds, bool ascii, const char* gap = "");

}  // namespace torchtap::views::report::detail
