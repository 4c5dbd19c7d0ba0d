// Maps shards, and finds rows in them.
#include <algorithm>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/rows/detail/table.hpp>

namespace torchtap::rows::detail {

Table::Table(const storage::RecordedEntry& entry, bool first_dimension) {
  entry.each_tensor().each_block([&](const at::Tensor& block) {
    at::Tensor rows = block;
    if (first_dimension) {
      TORCH_CHECK_VALUE(block.dim() >= 2, "rows::Rows: the samples of \"", entry.path(),
                        "\" have no dimensions, so there are no rows in them; read them with each_tensor().");
      of_samples_.insert(of_samples_.end(), static_cast<std::size_t>(block.size(0)), block.size(1));
      rows = block.flatten(0, 1);
    }
    if (rows.size(0) == 0) return;
    const at::IntArrayRef sizes = rows.sizes().slice(1);
    if (shards_.empty()) {
      dtype_ = rows.scalar_type();
      sizes_ = sizes.vec();
      bytes_ = static_cast<std::size_t>(rows.nbytes()) / static_cast<std::size_t>(rows.size(0));
    }
    TORCH_CHECK_VALUE(rows.scalar_type() == dtype_ && sizes == at::IntArrayRef(sizes_), "rows::Rows: \"",
                      entry.path(), "\" holds rows ", dtype_, " of the shape ", at::IntArrayRef(sizes_),
                      " and ", rows.scalar_type(), " of ", sizes, "; rows need one dtype and shape.");
    shards_.push_back(rows.contiguous());
    begins_.push_back(begins_.back() + rows.size(0));
  });
}

std::size_t Table::shard_of(std::int64_t row) const {
  return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) - begins_.begin()) -
         1;
}

at::Tensor Table::view(std::int64_t begin, std::int64_t end) const {
  if (begin == end) return {};
  const std::size_t shard = shard_of(begin);
  if (end > begins_[shard + 1]) return {};
  return shards_[shard].narrow(0, begin - begins_[shard], end - begin);
}

void Table::copy(std::int64_t begin, std::int64_t end, char* to) const {
  for (std::size_t shard = begin < end ? shard_of(begin) : 0; begin < end; ++shard) {
    const std::int64_t until = std::min(end, begins_[shard + 1]);
    const std::size_t bytes = static_cast<std::size_t>(until - begin) * bytes_;
    if (bytes != 0) std::memcpy(to, at(begin), bytes);
    to += bytes;
    begin = until;
  }
}

const char* Table::at(std::int64_t row) const {
  const std::size_t shard = shard_of(row);
  return static_cast<const char*>(shards_[shard].data_ptr()) +
         static_cast<std::size_t>(row - begins_[shard]) * bytes_;
}

}  // namespace torchtap::rows::detail
