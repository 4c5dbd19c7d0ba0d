#pragma once

// Numbers, sizes, times, types and shapes as people read them: one form of each for all views and the
// command.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::text {

/// "61,100,840".
TORCHTAP_API std::string count_text(std::int64_t number);

/// A number with three digits, in powers of 1000: "576", "9.41 k", "11.7 M".
TORCHTAP_API std::string amount_text(std::int64_t number);

/// "1 operation", "2,000 operations".
TORCHTAP_API std::string counted(std::int64_t number, const std::string& word);

/// "1.5 kB", in powers of 1000.
TORCHTAP_API std::string bytes_text(std::int64_t bytes);

/// "120 ms", with three digits; "3 min 20 s", "2 h 5 min". With `ascii`, "us" for microseconds.
TORCHTAP_API std::string duration_text(double seconds, bool ascii = false);

/// A moment in nanoseconds since 1970, UTC: "2026-11-23T16:04:55.123Z".
TORCHTAP_API std::string utc_text(std::int64_t time_ns);
/// The time of day here: "17:04:55.123".
TORCHTAP_API std::string clock_text(std::int64_t time_ns);

/// "ReLU" of "torch::nn::ReLUImpl" and of "__torch__.torch.nn.modules.activation.ReLU".
TORCHTAP_API std::string type_text(const std::string& type);

/// "8x3x224x224", "?" for a size of -1; `scalar` without dimensions.
TORCHTAP_API std::string shape_text(const std::vector<std::int64_t>& shape, const char* scalar);

/// A bar of `length` characters, of blocks of which the last may be partial; with `ascii`, of "#".
TORCHTAP_API std::string bar_text(double length, bool ascii);

/// A cell of CSV (RFC 4180): in quotes where it has to be.
TORCHTAP_API std::string csv_text(const std::string& text);

}  // namespace torchtap::views::text
