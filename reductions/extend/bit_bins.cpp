// Bins that are read off the upper bits of numbers, and counts of a sample in them.

#include <ATen/core/Tensor.h>

#include <cmath>

#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/extend/bit_bins.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions::extend {
namespace {

const auto& all = *new const detail::Folding{{}, true};  // never destroyed

}  // namespace

double BitBins::edge(std::int64_t magnitude) const noexcept {
  const std::int64_t first = std::int64_t{1} << mantissa_bits;  // bin of the least normal float32
  const std::int64_t octave = magnitude < first ? 0 : (magnitude >> mantissa_bits) - 1;
  return std::ldexp(static_cast<double>(magnitude - octave * first),
                    static_cast<int>(octave) - 126 - mantissa_bits);
}

void ask_bits(Pass& pass, BitBins bins) {
  detail::parts_of(pass).requests.ask_bits(all, bins);
}

const SlotCounts* count_bits(const Pass& pass, BitBins bins) {
  const auto* const found = detail::parts_of(pass).answers.count_bits(all, bins);
  return found == nullptr ? nullptr : &found->front();
}

SlotCounts count_bits(const at::Tensor& sample, BitBins bins) {
  const bool lazy = sample.is_neg() || sample._is_zerotensor();
  at::Tensor x = lazy ? detail::own_copy(sample) : sample.contiguous();
  if (!has_bits(x.scalar_type())) x = x.to(at::kDouble);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(bins.slots()));
  bit_kernels().count(x.scalar_type(), x.data_ptr(), static_cast<std::size_t>(x.numel()), bins,
                      counts.data());
  SlotCounts slots;
  for (std::size_t slot = 0; slot < counts.size(); ++slot) {
    if (counts[slot] != 0) slots.emplace_back(static_cast<std::uint32_t>(slot), counts[slot]);
  }
  return slots;
}

}  // namespace torchtap::reductions::extend
