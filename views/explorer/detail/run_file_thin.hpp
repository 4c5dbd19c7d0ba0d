#pragma once

// Makes the file of a run smaller, where its size is bounded.

#include <cstdint>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::views::explorer::detail {

/// Replaces a run's file by one of at most about half of `bytes`, unless one column of each series takes
/// more: columns of neighbouring steps are merged, exactly, and fewer points of scalars are kept. The step of
/// the first NaN or infinity of a series stays the first of its column. Returns the descriptor of the new
/// file, locked and ready to be appended to, and sets `size` to its size. The file is the old one or the new
/// one at any time. Throws `c10::Error` if it cannot be written, `c10::ValueError` if the old one is damaged;
/// then the old one is as it was.
TORCHTAP_API int thin(const std::string& path, std::int64_t bytes, std::uint64_t& size);

}  // namespace torchtap::views::explorer::detail
