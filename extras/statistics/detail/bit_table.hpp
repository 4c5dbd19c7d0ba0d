#pragma once

/// Holds the counts of a `LogHistogram`.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include <torchtap/reductions/extend/bit_bins.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>

namespace torchtap::statistics::detail {

using reductions::extend::BitBins;

/// The counts of `LogHistogram`: for each kept element one number for each slot of `BitBins`.
///
/// One kept element, and any number on a device other than the CPU, where growing would have to wait for the
/// device, have a column for every slot. Otherwise there are columns only for octaves, that is signs and
/// exponents, that came.
class BitTable {
 public:
  /// Some slots, ascending, and their counts, [kept elements, slots].
  struct Part {
    std::vector<std::int64_t> slots;
    at::Tensor counts;
  };

  explicit BitTable(BitBins bins) : bins_(bins) {}

  BitBins bins() const noexcept { return bins_; }
  /// Whether there are counts.
  explicit operator bool() const noexcept { return static_cast<bool>(counts_); }
  /// All counts 0.
  void start(std::int64_t kept, const at::Device& device);

  /// [slots] of the only kept element, on the CPU; null if there are more.
  std::int64_t* whole() noexcept;
  /// Adds counts of each kept element.
  void add(const std::vector<reductions::extend::SlotCounts>& kept);
  void add(const Part& part);
  /// Adds 1 for each element of rows in memory, each of all kept elements, in a table on the CPU. If it
  /// throws, the counts are unchanged.
  void add(c10::ScalarType type, const char* data, std::int64_t rows, std::int64_t kept);
  /// Adds 1 for each element of real numbers on any device.
  void add(const reductions::extend::Rows& rows);

  /// The slots that have counts.
  Part used() const;
  /// The counts of one slot, [kept elements], a copy.
  at::Tensor column(std::int64_t slot) const;

 private:
  using Octaves = std::vector<char>;  // whether each came

  std::size_t octave(std::int64_t slot) const noexcept {
    return static_cast<std::size_t>(slot >> bins_.mantissa_bits);
  }
  std::int64_t column_of(std::int64_t slot) const noexcept {
    return dense_ ? slot : first_[octave(slot)] + (slot & (bins_.per_octave() - 1));
  }
  Octaves missing(c10::ScalarType type, const char* data, std::int64_t numel) const;
  void reserve(const Octaves& octaves);

  BitBins bins_;
  bool dense_ = false;
  std::vector<std::int64_t> first_;   // the column where each octave begins; -1 for an octave without values
  std::int64_t columns_ = 0;          // in use
  reductions::extend::Owned counts_;  // [kept elements, at least `columns_`]
};

/// The slots of real numbers on any device, int64, made of ATen's operations.
at::Tensor bit_slots(const at::Tensor& x, BitBins bins);

}  // namespace torchtap::statistics::detail
