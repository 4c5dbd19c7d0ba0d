#pragma once

/// Defines the common base of `Min`, `Max` and `AbsMax`.

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// The common part of `Min`, `Max` and `AbsMax`. Samples of several dtypes are promoted to one as
/// `torch.promote_types` has it, also where states are merged: with float16 the int64 100000 becomes
/// infinite.
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
  /// Which extremum.
  enum class Kind { min, max, abs_max };

  Extremum(Kind kind, const char* name, detail::Folding folding);
  /// Merges another extremum's state.
  void merge_from(const Extremum& other);
  /// The same reduction without samples.
  template <class Derived>
  static Derived cleared(Derived copy) {
    copy.clear();
    return copy;
  }

 private:
  friend class cereal::access;
  void clear();
  void ask(Pass& pass) const override;
  bool ask_ledger(detail::Ledger& ledger) const override;
  void fold(const Pass& pass) override;
  bool fold_small(const Pass& pass) override;
  at::Tensor of(const detail::Rows& rows) const;
  double of(const Summary& summary) const;
  void take(const at::Tensor& value);
  double identity() const;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    const core::Elementwise elementwise(archive);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }

  Kind kind_;
  detail::Owned value_;
};

}  // namespace torchtap::reductions
