#pragma once

// Numbers, sizes and shapes as people read them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::text {

/// "61,100,840".
TORCHTAP_API std::string count_text(std::int64_t number);

/// "1 operation", "2,000 operations".
TORCHTAP_API std::string counted(std::int64_t number, const std::string& word);

/// "1.5 kB", in powers of 1000.
TORCHTAP_API std::string bytes_text(std::int64_t bytes);

/// "8x3x224x224", "?" for a size of -1; `scalar` without dimensions.
TORCHTAP_API std::string shape_text(const std::vector<std::int64_t>& shape, const char* scalar);

/// A bar of `length` characters, of blocks of which the last may be partial; with `ascii`, of "#".
TORCHTAP_API std::string bar_text(double length, bool ascii);

/// A cell of CSV (RFC 4180): in quotes where it has to be.
TORCHTAP_API std::string csv_text(const std::string& text);

}  // namespace torchtap::views::text
