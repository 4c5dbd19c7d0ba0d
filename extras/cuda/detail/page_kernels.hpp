#pragma once

/// Defines pages, in which a device adds samples up, and what the kernels do that write to them.

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <type_traits>

#include <torchtap/reductions/extend/device_kernels.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::cuda::detail {

using reductions::Summary;
using reductions::extend::DeviceRows;

/// What is computed of the samples of a page, beside counts, sums and extrema.
struct PageParts {
  bool moments = false;
  std::int64_t bins = 0;            ///< of a histogram of a given range; 0 for none
  std::int64_t mantissa_bits = -1;  ///< of `BitBins`; -1 for none
  double decay = -1;                ///< of an exponential average; -1 for none
  double power = -1;                ///< of magnitudes that are summed; -1 for none
  bool masked = false;              ///< only of rows that a mask chooses

  /// The parts as one number, for which kernels are compiled: a bit for each.
  int number() const noexcept {
    return (moments ? 1 : 0) | (bins != 0 ? 2 : 0) | (mantissa_bits >= 0 ? 4 : 0) | (decay >= 0 ? 8 : 0) |
           (power >= 0 ? 16 : 0) | (masked ? 32 : 0);
  }
};

/// How a page begins. A page is memory of a device, in which kernels add samples up by themselves, without a
/// number of the host: int64 numbers and float64 numbers of as many bytes. Behind the header come a lock
/// (int32) and a `Summary` of each kept element, and what else its parts ask for, `[kept]` twice, `[bins +
/// 1]`,
/// `[kept, bins + 3]` and `[kept, slots]`; `…_at` says how many numbers behind the page's beginning.
///
/// With masks, `elements` is the number of elements of all masks and `rows` the number of those that are
/// true.
struct PageHeader {
  std::int64_t samples = 0, elements = 0, rows = 0;
  std::int64_t kept = 0, bins = 0, mantissa_bits = -1;
  double decay = -1, power = -1;
  std::int64_t locks_at = 0, summaries_at = 0, decayed_at = 0, powers_at = 0, edges_at = 0, bins_at = 0,
               bits_at = 0;
};
static_assert(std::is_trivially_copyable_v<PageHeader> && sizeof(PageHeader) == 15 * sizeof(std::int64_t));
static_assert(std::is_trivially_copyable_v<Summary> && sizeof(Summary) == 12 * sizeof(std::int64_t));

/// A sample that is to be added to a page.
struct PageEntry {
  DeviceRows rows;
  at::Tensor page;
  PageParts parts;
  std::int64_t counted = 0;  ///< rows to count
  at::Tensor mask;           ///< bool; each element stands for as many rows, side by side, as the others
};

/// The kernels of a device, also those that add to pages.
class PageKernels : public reductions::extend::DeviceKernels {
 public:
  /// Whether samples of this dtype can be added to pages of these parts while a stream captures a graph:
  /// their kernels are compiled.
  virtual bool is_compiled(const at::Tensor& sample, const PageParts& parts) const = 0;
  /// Adds samples of one device to their pages, in as few launches as possible. The work may be captured in a
  /// graph; each replay adds what the samples' memory has then.
  virtual void add(c10::ArrayRef<PageEntry> entries) = 0;
  /// Moves all that a page has to `to`, of the page's shape; the page is empty then.
  virtual void take(const at::Tensor& page, const at::Tensor& to) = 0;
};

/// The kernels in use, if they add to pages; else null.
inline PageKernels* page_kernels() noexcept {
  return dynamic_cast<PageKernels*>(reductions::extend::installed());
}

}  // namespace torchtap::cuda::detail
