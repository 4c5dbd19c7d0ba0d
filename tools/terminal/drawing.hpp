#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

/// Draws histograms: with block characters in a UTF-8 locale, otherwise with ASCII.
namespace torchtap::tools {

/// One character per bin, or per group of adjacent bins; at most `width` characters. A blank means no counts
/// at all.
std::string sparkline(const std::vector<double>& counts, std::size_t width);

/// Prints bars of `counts`, one per line, with each bin's range and count. `edges` has one more entry than
/// `counts`.
void print_histogram(std::ostream& stream, const std::vector<double>& counts,
                     const std::vector<double>& edges);

}  // namespace torchtap::tools
