#pragma once

/// Defines the common base of the reductions whose state is one tensor.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// The common part of the reductions whose state is one tensor.
class TORCHTAP_API OneTensor : public Reduction {
 public:
  /// The result, a copy. Throws `c10::ValueError` if there are no samples.
  virtual at::Tensor value() const;
  /// "value", and "omitted" under `NonFinite::omit`.
  core::Results results() const;

 protected:
  using Reduction::Reduction;
  /// Makes `value`, as a copy of this dtype, the state of all samples so far.
  void set_value(const at::Tensor& value, c10::ScalarType dtype);
  /// The same reduction without samples.
  template <class Derived>
  static Derived cleared(Derived copy) {
    copy.intake_ = copy.intake_.fresh();
    copy.value_ = detail::Owned();
    return copy;
  }

  detail::Owned value_;  // NOLINT: of the derived classes, which are ours

 private:
  friend class cereal::access;
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    const core::Elementwise elementwise(archive);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }
};

}  // namespace torchtap::reductions
