#pragma once

// Columns as bytes are the same in files and in messages to the page (views/explorer/FORMAT.md).

#include <string>

#include <torchtap/views/explorer/detail/bytes.hpp>
#include <torchtap/views/watch/column.hpp>

namespace torchtap::views::explorer::detail {

void put_column(std::string& to, const watch::Column& column);
/// A column of a file; its bins are the rest of `from`. Throws `c10::ValueError` if the bytes are not a
/// column.
watch::Column get_column(Bytes& from);

}  // namespace torchtap::views::explorer::detail
