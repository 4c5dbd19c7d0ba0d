#pragma once

/// The names of the loops that count numbers by their upper bits.

#include <torchtap/reductions/extend/bit_bins.hpp>

namespace torchtap::reductions::detail {

using extend::bit_kernels;
using extend::BitBins;
using extend::BitKernels;
using extend::has_bits;
using extend::SlotCounts;

}  // namespace torchtap::reductions::detail
