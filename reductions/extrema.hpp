#pragma once

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// What `Min`, `Max` and `AbsMax` share.
class TORCHTAP_API Extremum : public Reduction {
 public:
  /// Replaces the state: `value` becomes the extremum of all samples so far.
  void assign(const at::Tensor& value);
  /// The extremum; NaN where every element was omitted. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// Number of non-finite elements left out, int64, in the shape of the value. Throws as `value`.
  at::Tensor omitted() const { return intake_.omitted(); }
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;

 protected:
  enum class Kind { min, max, abs_max };

  Extremum(Kind kind, const char* name, detail::Folding folding);
  void merge_from(const Extremum& other);
  void clear();

 private:
  friend class cereal::access;
  void ask(Pass& pass) const override;
  void fold(const Pass& pass) override;
  bool fold_small(const Pass& pass) override;
  at::Tensor of(const detail::Rows& rows) const;
  double of(const Summary& summary) const;
  void take(const at::Tensor& value);
  double identity() const;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }

  Kind kind_;
  detail::Owned value_;
};

/// `MinOptions().over({0})`.
class TORCHTAP_API MinOptions : public FoldOptions<MinOptions> {};
/// `MaxOptions().over({0})`.
class TORCHTAP_API MaxOptions : public FoldOptions<MaxOptions> {};
/// `AbsMaxOptions().over({0})`.
class TORCHTAP_API AbsMaxOptions : public FoldOptions<AbsMaxOptions> {};

/// The smallest value, elementwise or over rows, in the dtype of the samples. Real samples only.
class TORCHTAP_API Min : public Extremum {
 public:
  explicit Min(MinOptions options = {});
  /// Merges `other` as if its samples had followed this object's. Throws `c10::ValueError` if the
  /// configuration or shape differs, leaving the state unchanged.
  void merge(const Min& other) { merge_from(other); }
  Min fresh() const;
};

/// The largest value, elementwise or over rows, in the dtype of the samples. Real samples only.
class TORCHTAP_API Max : public Extremum {
 public:
  explicit Max(MaxOptions options = {});
  /// As `Min::merge`.
  void merge(const Max& other) { merge_from(other); }
  Max fresh() const;
};

/// The largest magnitude, elementwise or over rows, in the dtype of the samples; int64 for integers and bool,
/// real for complex samples.
class TORCHTAP_API AbsMax : public Extremum {
 public:
  explicit AbsMax(AbsMaxOptions options = {});
  /// As `Min::merge`.
  void merge(const AbsMax& other) { merge_from(other); }
  AbsMax fresh() const;
};

}  // namespace torchtap::reductions
