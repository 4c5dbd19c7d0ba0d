#pragma once

/// Defines the common base of `Sum` and `Mean`.

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// The common part of `Sum` and `Mean`.
class TORCHTAP_API Total : public Reduction {
 public:
  /// The result, a copy. Throws `c10::ValueError` if there are no samples.
  at::Tensor value() const;
  /// Number of non-finite elements left out, int64, in the shape of the result. Throws as `value`.
  at::Tensor omitted() const { return intake_.omitted(); }
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;

 protected:
  /// The result: a sum or a mean.
  enum class Kind { sum, mean };

  Total(Kind kind, const char* name, detail::Folding folding);
  /// Merges another total's state.
  void merge_from(const Total& other);
  /// Replaces the state by a sum.
  void assign_sum(const at::Tensor& value);
  /// The same reduction without samples.
  template <class Derived>
  static Derived cleared(Derived copy) {
    copy.clear();
    return copy;
  }

 private:
  friend class cereal::access;
  void clear();
  c10::ScalarType kept_type(c10::ScalarType dtype) const;
  void ask(Pass& pass) const override;
  bool ask_ledger(detail::Ledger& ledger) const override;
  void fold(const Pass& pass) override;
  bool fold_small(const Pass& pass) override;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    const core::Elementwise elementwise(archive);
    archive(intake_, sum_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*sum_);
  }

  Kind kind_;
  detail::Owned sum_;
};

}  // namespace torchtap::reductions
