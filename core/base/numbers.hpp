#pragma once

// Numbers in text, with a decimal point whatever locale the program has.

#include <optional>
#include <string>
#include <string_view>

#include <torchtap/base/api.hpp>

namespace torchtap::base {

/// The number that the whole text is, as in C++, also "+2", "inf" and "nan"; nothing for any other text.
TORCHTAP_API std::optional<double> number_of(std::string_view text);

/// The number with so many digits, without zeros at the end: C's "%.*g".
TORCHTAP_API std::string number_text(double value, int digits);
/// The number with so many decimals: C's "%.*f".
TORCHTAP_API std::string fixed_text(double value, int decimals);

}  // namespace torchtap::base
