#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

/// Histograms in characters: block characters in a UTF-8 locale, else ASCII.
namespace torchtap::tools {

/// One character for a bin, or for several that lie side by side. At most `width` characters; a blank is no
/// count at all.
std::string sparkline(const std::vector<double>& counts, std::size_t width);

/// Bars of `counts`, one a line, with the range of each bin and its count. `edges` has one more than
/// `counts`.
void print_histogram(std::ostream& stream, const std::vector<double>& counts,
                     const std::vector<double>& edges);

}  // namespace torchtap::tools
