#pragma once

// Sums up the findings in a sentence.

#include <string>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// "1 NaN and 3 Inf"; empty if there are none. Intended infinities are not counted if there are others.
std::string values_text(const NonFinite& values);
/// "the model itself" for the root.
std::string place(const std::string& path);
/// ", forward of call 3 in repeat 5": where a finding was made.
std::string moment_of(const Occurrence& finding, const Measurements& results);

/// The origin of the first NaN, or, if there is none, of the first infinity: "the first NaN: aten::log in
/// head, forward of call 1, makes 24 NaN of finite values; self: float32 [2, 8], minimum -1002, …". Empty if
/// there is neither; infinities that are intended do not count.
std::string first_non_finite(const Measurements& results);
/// "by aten::masked_fill in h.0.att and 5 more modules; absorbed by aten::softmax"; empty for none.
std::string intended_infinities(const Measurements& results);

}  // namespace torchtap::views::report::detail
