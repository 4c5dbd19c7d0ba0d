#pragma once

/// Keeps a uniform random choice of k samples.

#include <torch/arg.h>

#include <string>
#include <type_traits>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/statistics/detail/random.hpp>

namespace torchtap::reductions {

/// `ReservoirOptions(100).seed(7).over({0})`.
class TORCHTAP_API ReservoirOptions : public RowOptions<ReservoirOptions> {
 public:
  ReservoirOptions(std::int64_t k = 100) : k_(k) {}  // NOLINT: implicit, so that k can be passed alone
  /// Not of a bool: `ReservoirOptions().over_all()` of constant options asks whether all is folded.
  template <class Bool, class = std::enable_if_t<std::is_same_v<Bool, bool>>>
  ReservoirOptions(Bool) = delete;  // NOLINT: as above
  /// Number of samples to keep.
  TORCH_ARG(std::int64_t, k);
  /// Seed of the reservoir's own generator; the same seed and stream give the same choice. Streams of other
  /// rows get other choices with the same seed on the CPU, where the first k rows are mixed in. On other
  /// devices, which would have to be waited for, give parts that are merged later different seeds.
  TORCH_ARG(std::uint64_t, seed) = 0;
};

/// A uniform random choice of k samples, or rows under `over(dims)`, without replacement: as Algorithm R
/// (Vitter 1985), but skips to the next row that is chosen.
///
/// Samples are `[...]` of any plain dtype and device; the chosen ones are copied unchanged. The choice
/// depends on the sequence of rows, not on how they were batched. Random numbers come from the reservoir's
/// own generator on the host: it neither advances torch's generators nor synchronises with a device.
class TORCHTAP_API Reservoir : public Reduction {
 public:
  /// Throws `c10::ValueError` unless k is positive.
  explicit Reservoir(ReservoirOptions options = {});

  /// Merges `other`: afterwards a uniform choice from this object's stream followed by `other`'s. It is
  /// identical to a single stream's sample while both fit into k, and has the same distribution beyond that,
  /// unless both saw the same rows, or chose on a device with the same seed. Without samples it goes on as
  /// `other` would. Throws `c10::ValueError` if k or the shape differs, leaving the state unchanged.
  void merge(const Reservoir& other);

  /// `[min(k, count), ...]`. Throws `c10::ValueError` if there are no samples.
  at::Tensor samples() const;
  /// The position of each chosen row in the stream, from 0; `[min(k, count)]`, int64, on the CPU. Throws as
  /// `samples`.
  at::Tensor indices() const;
  /// "samples" and "indices".
  core::Results results() const;
  /// "Reservoir(100)".
  std::string describe() const;
  Reservoir fresh() const;

 private:
  friend class cereal::access;
  bool combine_lines(const extend::Lines& lines) override;
  bool combine_all(const extend::Memory& all) override;
  void combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> kept) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, k_, seed_, random_, samples_, indices_);
    if constexpr (Archive::is_loading::value) restored();
  }
  void restored();
  std::int64_t first_choice(statistics::detail::Random& random, std::int64_t from, std::int64_t seen) const;
  std::int64_t next_choice(statistics::detail::Random random, std::int64_t from, std::int64_t seen) const;

  std::int64_t k_;
  std::uint64_t seed_;
  statistics::detail::Random random_;  // as it was after the latest choice
  std::int64_t chosen_next_ = 0;       // position in the stream; below the count if not known
  extend::Owned samples_;              // [filled positions and some spare ones, ...]
  std::vector<std::int64_t> indices_;  // of the filled positions
};

}  // namespace torchtap::reductions
