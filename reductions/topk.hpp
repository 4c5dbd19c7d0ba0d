#pragma once

#include <torch/arg.h>

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {

/// `TopKOptions(10).largest(false).over({0})`.
class TORCHTAP_API TopKOptions : public FoldOptions<TopKOptions> {
 public:
  TopKOptions(std::int64_t k = 10) : k_(k) {}  // NOLINT: k is all there is to say
  TORCH_ARG(std::int64_t, k);
  /// Whether to keep the largest or the smallest.
  TORCH_ARG(bool, largest) = true;
};

/// The k largest (or smallest) values of each kept element, and which samples they came from.
///
/// Samples are `[...]` of any real dtype and device. Indices number the samples, or the rows under
/// `over(dims)`, from 0 in the order of the stream. Of equal values the earlier sample is kept and stands
/// first. NaN counts as larger than any number, as in `torch::topk`; under `NonFinite::omit` elements that
/// were not finite are left out, and places left empty have the value NaN and the index -1.
class TORCHTAP_API TopK {
 public:
  /// Throws `c10::ValueError` unless k is positive.
  explicit TopK(TopKOptions options = {});

  /// Adds a sample. Throws `c10::ValueError` on another shape or device, or a non-finite element under
  /// `NonFinite::raise`; `c10::TypeError` on complex, quantized or sparse tensors. The state is then
  /// unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// Afterwards as if this object had seen its stream and then `other`'s, whose indices move up by this
  /// one's count. Throws `c10::ValueError` on another configuration or shape; the state is then unchanged.
  void merge(const TopK& other);

  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// `[min(k, count), ...]` in the dtype of the samples, best first. Throws `c10::ValueError` if there are no
  /// samples.
  at::Tensor values() const;
  /// `[min(k, count), ...]`, int64. Throws as `values`.
  at::Tensor indices() const;
  /// How many non-finite elements were left out, `[...]`, int64. Throws as `values`.
  at::Tensor omitted() const;
  /// "values", "indices", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  /// "TopK(10)" or "TopK(10, smallest)".
  std::string describe() const;
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  TopK fresh() const;

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, k_, largest_, values_, indices_);
    if constexpr (Archive::is_loading::value) restored();
  }

 private:
  void fold(const at::Tensor& values, const at::Tensor& indices);
  double worst() const;
  void restored() const;

  detail::Intake intake_;
  std::int64_t k_;
  bool largest_;
  detail::Owned values_, indices_;  // [at most k, kept elements], best first
};

}  // namespace torchtap::reductions
