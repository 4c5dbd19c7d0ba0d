#pragma once

/// Declares the network that sorts neighbouring columns side by side.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace torchtap::statistics::detail {

/// Bytes of `scratch` for each row.
constexpr std::size_t kSortedBytes = 128;

/// Whether this build has Highway, without which there is no network.
bool has_networks() noexcept;

/// Sorts each of `width` columns of float32 or float64 ascending, NaN last; of each two neighbours of the
/// result it writes the second where bit column % 64 of `odd` is set, and else the first: [rows / 2, width].
/// `rows` is even. Rows of `x` and `to` are `stride` elements apart; `scratch` is of rows * `kSortedBytes`.
void halve_by_network(c10::ScalarType type, const void* x, std::size_t rows, std::size_t width,
                      std::size_t stride, std::uint64_t odd, void* to, void* scratch);

}  // namespace torchtap::statistics::detail
