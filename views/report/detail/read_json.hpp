#pragma once

#include <string>

#include <torchtap/views/report/results.hpp>

namespace torchtap::views::report::detail {

/// Reads what `report::json` wrote. Throws `c10::ValueError`, which begins with `where`.
Results read_json(const std::string& text, const std::string& where);

}  // namespace torchtap::views::report::detail
