#pragma once

/// Declares the kernels for samples on devices, which a component installs. Without them reductions are
/// ATen's operations.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/bit_bins.hpp>
#include <torchtap/reductions/summary.hpp>

namespace torchtap::reductions::extend {

/// A sample in the memory of a device: element (o, k, i) lies at (o * kept + k) * inner + i, and is one of
/// outer * inner rows of kept element k.
struct DeviceRows {
  at::Tensor memory;
  std::int64_t outer, kept, inner;

  std::int64_t rows() const noexcept { return outer * inner; }
};

/// The state of `Moments`, float64 `[kept]` on the device; m3 and m4 are undefined for order 2.
struct DeviceMoments {
  at::Tensor mean, m2, m3, m4;
};

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

/// Each call changes states in place, as later work of the device's current stream, and waits for nothing.
/// Throws `c10::Error`, having changed nothing, if the device refuses the work.
class TORCHTAP_API DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  /// Whether it reads plain numbers of this dtype on this device.
  virtual bool reads(const at::Tensor& sample) const = 0;
  /// Folds rows into the moments of `before` rows.
  virtual void fold_moments(const DeviceRows& rows, std::int64_t before, const DeviceMoments& state) = 0;
  /// Adds the numbers of NaN, infinities and zeros among all elements; int64 `[]`.
  virtual void count_kinds(const DeviceRows& rows, const at::Tensor& nan, const at::Tensor& infinities,
                           const at::Tensor& zeros) = 0;
  /// Adds the counts of each bin, of values below and above the range, and of NaN; int64 `[kept, bins + 3]`.
  /// `edges` is float64 `[bins + 1]`, on the device.
  virtual void count_bins(const DeviceRows& rows, const at::Tensor& edges, const at::Tensor& counts) = 0;
  /// Counts in a range that grows as `BinRange` does: the state is moved to the bins of the new range first.
  /// `min` and `max` are float64 `[]`, `exponent` and `start` int64 `[]`.
  virtual void count_growing_bins(const DeviceRows& rows, const at::Tensor& min, const at::Tensor& max,
                                  const at::Tensor& exponent, const at::Tensor& start,
                                  const at::Tensor& counts) = 0;
  /// Adds the counts of each slot; int64 `[kept, bins.slots()]`.
  virtual void count_bits(const DeviceRows& rows, BitBins bins, const at::Tensor& counts) = 0;

  /// Whether samples of this dtype can be added to pages of these parts while a stream captures a graph:
  /// their kernels are compiled.
  virtual bool is_compiled(const at::Tensor& sample, const PageParts& parts) const = 0;
  /// Adds samples of one device to their pages, in as few launches as possible. The work may be captured in a
  /// graph; each replay adds what the samples' memory has then.
  virtual void add(c10::ArrayRef<PageEntry> entries) = 0;
  /// Moves all that a page has to `to`, of the page's shape; the page is empty then.
  virtual void take(const at::Tensor& page, const at::Tensor& to) = 0;
};

/// Sets the kernels in use, which have to live as long as the program; null removes them.
TORCHTAP_API void install(DeviceKernels* kernels) noexcept;
/// The kernels in use; null if there are none.
TORCHTAP_API DeviceKernels* installed() noexcept;

}  // namespace torchtap::reductions::extend
