#pragma once

#include <string>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// Reads the text of `report::json`. Throws `c10::ValueError`, which begins with `where`.
Measurements read_json(const std::string& text, const std::string& where);

}  // namespace torchtap::views::report::detail
