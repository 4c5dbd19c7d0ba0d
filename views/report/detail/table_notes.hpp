#pragma once

// What stands above and below the table, in words.

#include <string>
#include <vector>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// "ResNet, input 8x3x224x224 float32 on cpu; 20 repeats after 3 to warm up".
std::string title_of(const Measurements& results);

/// What is wrong with the values, in a sentence that stands above the table; empty if nothing is.
std::string alarm_of(const Measurements& results);

/// Sums, findings, marks and notes, each a paragraph.
std::vector<std::string> sentences_of(const Measurements& results, bool ascii);

}  // namespace torchtap::views::report::detail
