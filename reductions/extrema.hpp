#pragma once

#include <string>
#include <torchtap/core/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {
namespace detail {

/// What `Min`, `Max` and `AbsMax` have in common.
class TORCHTAP_API Extremum {
 public:
  enum class Kind { min, max, abs_max };

  /// Takes a sample in. NaN wins, as in `torch::minimum` and `torch::maximum`. Throws `c10::ValueError` on
  /// another shape or device, or a non-finite element under `NonFinite::raise`; `c10::TypeError` on
  /// quantized or sparse tensors, and on complex ones where there is no order. The state is then unchanged.
  void update(const at::Tensor& sample);
  /// Throws what `update` would throw for this sample; changes nothing.
  void check(const at::Tensor& sample) const;
  /// The three steps of an update that shares its pass over the sample, as those of a `Series` do.
  void ask(Scan& scan) const;
  void check(const Scan& scan) const;
  void update(const Scan& scan);
  /// Goes on from `value` as the extremum of all samples so far.
  void assign(const at::Tensor& value);
  /// Samples, or rows under `over(dims)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// The extremum; NaN where every element was omitted. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// How many non-finite elements were left out, int64 in the shape of the value. Throws as `value`.
  at::Tensor omitted() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;
  std::string describe() const { return intake_.describe(); }
  /// For `restore`.
  std::string recipe() const { return intake_.name(); }
  bool commutative() const noexcept { return true; }

  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }

 protected:
  Extremum(Kind kind, const char* name, Folding folding);
  void merge_from(const Extremum& other);
  void clear();

 private:
  at::Tensor of(const Rows& rows) const;
  double of(const Summary& summary) const;
  void fold(const at::Tensor& value);
  double identity() const;

  Kind kind_;
  Intake intake_;
  Owned value_;
};

}  // namespace detail

/// `MinOptions().over({0})`.
class TORCHTAP_API MinOptions : public FoldOptions<MinOptions> {};
/// `MaxOptions().over({0})`.
class TORCHTAP_API MaxOptions : public FoldOptions<MaxOptions> {};
/// `AbsMaxOptions().over({0})`.
class TORCHTAP_API AbsMaxOptions : public FoldOptions<AbsMaxOptions> {};

/// The smallest value, elementwise or over rows, in the dtype of the samples (real ones).
class TORCHTAP_API Min : public detail::Extremum {
 public:
  explicit Min(MinOptions options = {});
  /// Afterwards as if this object had seen its stream and then `other`'s. Throws `c10::ValueError` on
  /// another configuration or shape; the state is then unchanged.
  void merge(const Min& other) { merge_from(other); }
  Min fresh() const;
};

/// The largest value, elementwise or over rows, in the dtype of the samples (real ones).
class TORCHTAP_API Max : public detail::Extremum {
 public:
  explicit Max(MaxOptions options = {});
  /// As `Min::merge`.
  void merge(const Max& other) { merge_from(other); }
  Max fresh() const;
};

/// The largest magnitude, elementwise or over rows: in the dtype of the samples, int64 for integers and bool,
/// real for complex samples.
class TORCHTAP_API AbsMax : public detail::Extremum {
 public:
  explicit AbsMax(AbsMaxOptions options = {});
  /// As `Min::merge`.
  void merge(const AbsMax& other) { merge_from(other); }
  AbsMax fresh() const;
};

}  // namespace torchtap::reductions
