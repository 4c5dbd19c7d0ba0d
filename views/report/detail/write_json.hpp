#pragma once

#include <string>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// The document of `report::json`. With `ordered`, modules also have a list "order" of their children's
/// names: JavaScript moves names that are numbers to the front of an object.
std::string write_json(const Measurements& results, bool ordered);

}  // namespace torchtap::views::report::detail
