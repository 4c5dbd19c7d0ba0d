#pragma once

/// Keeps the k largest or smallest values, and the indices of the samples that they came from.

#include <torch/arg.h>

#include <string>
#include <type_traits>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/statistics/detail/columns.hpp>

namespace torchtap::reductions {

/// `TopKOptions(10).largest(false).over({0})`.
class TORCHTAP_API TopKOptions : public FoldOptions<TopKOptions> {
 public:
  TopKOptions(std::int64_t k = 10) : k_(k) {}  // NOLINT: implicit, so that k can be passed alone
  /// Not of a bool: `TopKOptions().over_all()` of constant options asks whether all is folded.
  template <class Bool, class = std::enable_if_t<std::is_same_v<Bool, bool>>>
  TopKOptions(Bool) = delete;  // NOLINT: as above
  /// Number of values to keep.
  TORCH_ARG(std::int64_t, k);
  /// Whether to keep the largest values or the smallest.
  TORCH_ARG(bool, largest) = true;
};

/// The k largest (or smallest) values of each kept element, and the samples they came from.
///
/// Samples are `[...]` of any real dtype and device. Indices number the samples, or the rows under
/// `over(dims)`, from 0 in stream order. Among equal values the earlier sample wins and comes first. NaN
/// counts as larger than any number, as in `torch::topk`. Under `NonFinite::omit` non-finite elements are
/// left out; positions that stay empty have the value NaN and the index -1.
class TORCHTAP_API TopK : public Reduction {
 public:
  /// Throws `c10::ValueError` unless k is positive.
  explicit TopK(TopKOptions options = {});

  /// Merges `other` as if its samples had followed this object's; its indices move up by this object's count.
  /// Throws `c10::ValueError` if the configuration or shape differs, leaving the state unchanged.
  void merge(const TopK& other);

  /// `[min(k, count), ...]` in the dtype of the samples, best first. Throws `c10::ValueError` if there are no
  /// samples.
  at::Tensor values() const;
  /// `[min(k, count), ...]`, int64. Throws as `values`.
  at::Tensor indices() const;
  /// Number of non-finite elements left out, `[...]`, int64. Throws as `values`.
  at::Tensor omitted() const { return intake_.omitted(); }
  /// "values", "indices", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  /// "TopK(10)" or "TopK(10, smallest)".
  std::string describe() const;
  TopK fresh() const;

 private:
  friend class cereal::access;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, k_, largest_, values_, indices_);
    if constexpr (Archive::is_loading::value) restored();
  }
  void insert(const at::Tensor& values, const at::Tensor& indices);
  bool combine_lines(const extend::Lines& lines) override;
  bool combine_all(const extend::Memory& all) override;
  void combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> kept) override;
  void offer(const at::Tensor& rows, std::int64_t index);
  statistics::detail::Best best();
  double worst() const;
  void restored() const;

  std::int64_t k_;
  bool largest_;
  extend::Owned values_, indices_;  // [at most k, kept elements], best first
};

}  // namespace torchtap::reductions
