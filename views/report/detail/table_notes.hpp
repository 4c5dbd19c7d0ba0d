#pragma once

// The sentences above and below the table.

#include <string>
#include <vector>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// "ResNet, input 8x3x224x224 float32 on cpu; 20 repeats after 3 to warm up".
std::string title_of(const Measurements& results);

/// A sentence above the table about values that are not finite; empty if there are none.
std::string alarm_of(const Measurements& results);

/// Sums, findings, marks and notes, each a paragraph.
std::vector<std::string> sentences_of(const Measurements& results, bool ascii);

}  // namespace torchtap::views::report::detail
