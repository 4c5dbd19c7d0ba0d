#pragma once

#include <torch/arg.h>

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/detail/random.hpp>
#include <vector>

namespace torchtap::reductions {

/// `ReservoirOptions(100).seed(7).over({0})`.
class TORCHTAP_API ReservoirOptions : public RowOptions<ReservoirOptions> {
 public:
  ReservoirOptions(std::int64_t k = 100) : k_(k) {}  // NOLINT: k is all there is to say
  TORCH_ARG(std::int64_t, k);
  /// Of the reservoir's own generator; the same seed and stream give the same choice.
  TORCH_ARG(std::uint64_t, seed) = 0;
};

/// A uniform choice of k samples, or rows under `over(dims)`, without replacement: Algorithm R (Vitter 1985).
///
/// Samples are `[...]` of any plain dtype and device; those chosen are copied as they are. The choice depends
/// on the rows, not on how they were batched. Random numbers are drawn on the host from a generator of its
/// own: torch's are not touched, no device is waited for.
class TORCHTAP_API Reservoir {
 public:
  /// Throws `c10::ValueError` unless k is positive.
  explicit Reservoir(ReservoirOptions options = {});

  /// Offers a sample. Throws `c10::ValueError` on another shape or device, `c10::TypeError` on quantized or
  /// sparse tensors. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// Afterwards a uniform choice from this object's stream followed by `other`'s; as long as both fit into k,
  /// exactly the one of a single stream, then one of the same distribution. Throws `c10::ValueError` on
  /// another k or shape; the state is then unchanged.
  void merge(const Reservoir& other);

  /// Samples, or rows under `over(dims)`, that were offered.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// `[min(k, count), ...]`. Throws `c10::ValueError` if there are no samples.
  at::Tensor samples() const;
  /// The place of each in the stream, from 0; `[min(k, count)]`, int64, on the CPU. Throws as `samples`.
  at::Tensor indices() const;
  /// "samples" and "indices".
  core::Results results() const;
  /// "Reservoir(100)".
  std::string describe() const;
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  Reservoir fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, k_, seed_, random_, samples_, indices_);
    if constexpr (Archive::is_loading::value) restored();
  }

 private:
  void restored() const;

  detail::Intake intake_;
  std::int64_t k_;
  std::uint64_t seed_;
  detail::Random random_;
  detail::Owned samples_;              // [filled places and some spare ones, ...]
  std::vector<std::int64_t> indices_;  // of the filled places
};

}  // namespace torchtap::reductions
