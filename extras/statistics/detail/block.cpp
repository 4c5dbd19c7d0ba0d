// Copies rows into the memory of a block, and checks blocks that archives hold.

#include <ATen/Functions.h>

#include <torchtap/statistics/detail/block.hpp>

namespace torchtap::statistics::detail {

using reductions::extend::Lines;
using reductions::extend::Memory;

bool Block::fits(std::int64_t count) const noexcept {
  return !rows_ || count <= places(rows_->size(1)) - used_;
}

at::Tensor Block::held() const {
  return rows_ ? rows_->narrow(0, 0, used_) : at::Tensor();
}

void Block::append(const at::Tensor& rows) {
  const std::int64_t count = rows.size(0), size = rows.size(1), places = Block::places(size);
  auto dtype = reductions::extend::wide_type(rows.scalar_type());
  if (rows_) dtype = c10::promoteTypes(dtype, rows_->scalar_type());
  if (!rows_ || rows_->size(0) != places || rows_->scalar_type() != dtype) {
    const at::Tensor wider = at::empty({places, size}, rows.options().dtype(dtype));
    if (used_ != 0) wider.narrow(0, 0, used_).copy_(held());
    rows_ = wider;
  }
  rows_->narrow(0, used_, count).copy_(rows);
  used_ += count;
}

bool Block::append(const Lines& lines) noexcept {
  if (!rows_ || lines.rows > rows_->size(0) - used_ || rows_->scalar_type() != at::kDouble ||
      !rows_->is_cpu())
    return false;
  double* to = static_cast<double*>(rows_->data_ptr()) + used_ * lines.numel;
  lines.each([&to](const Memory& row) {
    reductions::extend::copy(row, at::kDouble, to);
    to += row.numel;
  });
  used_ += lines.rows;
  return true;
}

bool Block::is_sound(std::int64_t size) const noexcept {
  if (!rows_) return true;
  return rows_->dim() == 2 && rows_->size(1) == size && used_ > 0 && used_ < places(size) &&
         (rows_->scalar_type() == at::kDouble || rows_->scalar_type() == at::kComplexDouble);
}

}  // namespace torchtap::statistics::detail
