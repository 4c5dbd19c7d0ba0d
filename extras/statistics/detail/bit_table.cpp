// Adds counts to the table of a `LogHistogram`, and makes columns for octaves when their first value comes.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/extend/ledger.hpp>
#include <torchtap/statistics/detail/bit_table.hpp>

namespace torchtap::statistics::detail {
namespace {

using reductions::extend::bit_kernels;
using reductions::extend::own_copy;
using reductions::extend::parallel;
using reductions::extend::SlotCounts;

constexpr std::int64_t kChunk = 256;   // elements whose slots are found at a time
constexpr std::int64_t kMany = 65536;  // elements: below, one thread is faster

at::Tensor to_tensor(const std::vector<std::int64_t>& numbers, const at::Device& device) {
  at::Tensor result =
      at::empty({static_cast<std::int64_t>(numbers.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(numbers.begin(), numbers.end(), result.data_ptr<std::int64_t>());
  return result.to(device);
}

}  // namespace

void BitTable::start(std::int64_t kept, const at::Device& device) {
  dense_ = kept == 1 || !device.is_cpu();
  columns_ = dense_ ? bins_.slots() : 0;
  first_.assign(dense_ ? 0 : octave(bins_.zero()) + 1, -1);
  counts_ = at::zeros({kept, columns_}, at::TensorOptions().dtype(at::kLong).device(device));
}

std::int64_t* BitTable::whole() noexcept {
  return counts_ && counts_->size(0) == 1 && counts_->device().is_cpu() ? counts_->data_ptr<std::int64_t>()
                                                                        : nullptr;
}

/// Makes columns for octaves that have none, with room for half as many more, so that copying costs little.
void BitTable::reserve(const Octaves& octaves) {
  if (dense_ || octaves.empty()) return;
  std::int64_t columns = columns_;
  for (std::size_t i = 0; i < octaves.size(); ++i) {
    if (octaves[i] != 0 && first_[i] < 0) columns += bins_.per_octave();
  }
  if (columns > counts_->size(1)) {
    const base::RecordingMode quiet;
    const std::int64_t room = columns_ == 0 ? columns : std::max(columns, columns_ + columns_ / 2);
    at::Tensor counts = at::zeros({counts_->size(0), room}, counts_->options());
    counts.narrow(1, 0, columns_).copy_(counts_->narrow(1, 0, columns_));
    counts_ = std::move(counts);
  }
  for (std::size_t i = 0; i < octaves.size(); ++i) {
    if (octaves[i] == 0 || first_[i] >= 0) continue;
    first_[i] = columns_;
    columns_ += bins_.per_octave();
  }
}

void BitTable::add(const std::vector<SlotCounts>& kept) {
  Octaves octaves(first_.size(), 0);
  for (const auto& one : kept) {
    if (dense_) break;
    for (const auto& [slot, count] : one) octaves[octave(slot)] = 1;
  }
  reserve(octaves);
  std::int64_t* to = counts_->data_ptr<std::int64_t>();
  for (const auto& one : kept) {
    for (const auto& [slot, count] : one) to[column_of(slot)] += count;
    to += counts_->size(1);
  }
}

void BitTable::add(const Part& part) {
  if (part.slots.empty()) return;
  Octaves octaves(first_.size(), 0);
  for (const std::int64_t slot : part.slots) {
    if (!dense_) octaves[octave(slot)] = 1;
  }
  reserve(octaves);
  std::vector<std::int64_t> columns;
  for (const std::int64_t slot : part.slots) columns.push_back(column_of(slot));
  const at::Device device = counts_->device();
  counts_->index_add_(1, to_tensor(columns, device), part.counts.to(device));
}

/// The octaves of the elements if one of them has no columns; empty otherwise.
BitTable::Octaves BitTable::missing(c10::ScalarType type, const char* data, std::int64_t numel) const {
  const auto item = static_cast<std::int64_t>(c10::elementSize(type));
  const auto look = [&](std::int64_t begin, std::int64_t end, Octaves& found) {
    std::uint32_t slots[kChunk];
    for (std::int64_t i = begin; i < end; i += kChunk) {
      const std::int64_t n = std::min(kChunk, end - i);
      bit_kernels().find(type, data + i * item, static_cast<std::size_t>(n), bins_, slots);
      std::int64_t least = 0;
      for (std::int64_t k = 0; k < n; ++k) least |= first_[octave(slots[k])];
      if (least >= 0) continue;
      found.resize(first_.size(), 0);
      for (std::int64_t k = 0; k < n; ++k) found[octave(slots[k])] = 1;
    }
  };
  Octaves all;
  if (numel < kMany) {
    look(0, numel, all);
    return all;
  }
  std::mutex mutex;
  parallel(numel, numel, [&](std::int64_t begin, std::int64_t end) {
    Octaves mine;
    look(begin, end, mine);
    const std::lock_guard lock(mutex);
    if (!mine.empty()) all.resize(mine.size(), 0);
    for (std::size_t i = 0; i < mine.size(); ++i) all[i] = static_cast<char>(all[i] | mine[i]);
  });
  return all;
}

void BitTable::add(c10::ScalarType type, const char* data, std::int64_t rows, std::int64_t kept) {
  const std::int64_t numel = rows * kept;
  const auto item = static_cast<std::int64_t>(c10::elementSize(type));
  if (std::int64_t* const all = whole())
    return bit_kernels().count(type, data, static_cast<std::size_t>(numel), bins_, all);
  reserve(missing(type, data, numel));
  std::int64_t* const counts = counts_->data_ptr<std::int64_t>();
  const std::int64_t width = counts_->size(1);
  // Threads share out the kept elements, so that no two have the same counts.
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t slots[kChunk];
    // All kept elements of all rows are one contiguous piece; some of them are one piece of each row.
    const bool whole = end - begin == kept;
    const std::int64_t pieces = whole ? 1 : rows, length = whole ? numel : end - begin;
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const char* from = data + (piece * kept + begin) * item;
      std::int64_t k = begin;
      for (std::int64_t done = 0; done < length; done += kChunk) {
        const std::int64_t n = std::min(kChunk, length - done);
        bit_kernels().find(type, from, static_cast<std::size_t>(n), bins_, slots);
        from += n * item;
        for (std::int64_t i = 0; i < n; ++i) {
          ++counts[k * width + column_of(slots[i])];
          if (++k == end) k = begin;
        }
      }
    }
  };
  if (numel < kMany) {
    part(0, kept);
  } else {
    parallel(kept, numel, part);
  }
}

void BitTable::add(const reductions::extend::Rows& sample) {
  if (auto* const kernels = reductions::extend::kernels_for(sample))
    return kernels->count_bits(reductions::extend::device_rows(sample), bins_, *counts_);
  const at::Tensor rows = sample.flat(sample.view);
  if (counts_->device().is_cpu()) {
    at::Tensor x = rows.is_neg() || rows._is_zerotensor() ? own_copy(rows) : rows.contiguous();
    if (!reductions::extend::has_bits(x.scalar_type())) x = x.to(at::kDouble);
    return add(x.scalar_type(), static_cast<const char*>(x.data_ptr()), x.size(0), x.size(1));
  }
  const at::Tensor slots = bit_slots(rows, bins_);
  counts_->scatter_add_(1, slots.t(),
                        at::ones({}, counts_->options()).expand({slots.size(1), slots.size(0)}));
}

// Exported for the serialisation of a LogHistogram, which programs compile.
TORCHTAP_API BitTable::Part BitTable::used() const {
  Part part;
  if (!counts_) return part;
  const at::Tensor any = at::ne(*counts_, 0).any(0).to(at::kCPU).contiguous();
  const bool* const has = any.data_ptr<bool>();
  std::vector<std::int64_t> columns;
  const auto take = [&](std::int64_t slot) {
    if (!has[column_of(slot)]) return;
    part.slots.push_back(slot);
    columns.push_back(column_of(slot));
  };
  if (dense_) {
    for (std::int64_t slot = 0; slot < bins_.slots(); ++slot) take(slot);
  }
  for (std::size_t i = 0; i < first_.size(); ++i) {
    if (first_[i] < 0) continue;
    for (std::int64_t k = 0; k < bins_.per_octave(); ++k)
      take(static_cast<std::int64_t>(i) * bins_.per_octave() + k);
  }
  part.counts = counts_->index_select(1, to_tensor(columns, counts_->device()));
  return part;
}

at::Tensor BitTable::column(std::int64_t slot) const {
  if (!dense_ && first_[octave(slot)] < 0) return at::zeros({counts_->size(0)}, counts_->options());
  return own_copy(counts_->select(1, column_of(slot)));
}

at::Tensor bit_slots(const at::Tensor& x, BitBins bins) {
  constexpr std::int64_t kInfinity = std::int64_t{0x7FF} << 52, kRebias = 1023 - 127;
  const int m = bins.mantissa_bits;
  const at::Tensor wide = x.to(at::kDouble);
  const at::Tensor bits = wide.view(at::kLong);
  const at::Tensor magnitude = at::bitwise_and(bits, ~(std::int64_t{1} << 63));
  // Below the least normal float32, bins have the width of the first.
  const at::Tensor small = at::lt(magnitude, (kRebias + 1) << 52);
  const at::Tensor first =
      at::mul(wide.abs().masked_fill(small.logical_not(), 0.0), std::ldexp(1.0, 126 + m)).to(at::kLong);
  at::Tensor slots =
      at::sub(at::bitwise_right_shift(magnitude, 52 - m), kRebias << m).clamp_max_(bins.infinity() - 1);
  slots = at::where(small, first, slots);
  slots.masked_fill_(at::eq(magnitude, kInfinity), bins.infinity());
  slots.add_(at::mul(at::lt(bits, 0).to(at::kLong), bins.negative()));
  slots.masked_fill_(at::gt(magnitude, kInfinity), bins.nan());
  return slots.masked_fill_(at::eq(magnitude, 0), bins.zero());
}

}  // namespace torchtap::statistics::detail
