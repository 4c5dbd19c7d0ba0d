#pragma once

/// Defines the common base of `First` and `Last`.

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions {

/// The common part of `First` and `Last`.
class TORCHTAP_API OneSample : public Reduction {
 public:
  /// Replaces the state: `value` becomes the sample.
  void assign(const at::Tensor& value);
  /// The sample, a copy. Throws `c10::ValueError` if there are none.
  at::Tensor value() const;
  /// "value".
  core::Results results() const;

 protected:
  OneSample(const char* name, detail::Folding folding);
  /// The same reduction without samples.
  template <class Derived>
  static Derived cleared(Derived copy) {
    copy.clear();
    return copy;
  }

  detail::Owned value_;  // NOLINT: of the derived classes, which are ours

 private:
  friend class cereal::access;
  void clear();
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, intake_.name(), 1);
    const core::Elementwise elementwise(archive);
    archive(intake_, value_);
    if constexpr (Archive::is_loading::value) intake_.check_restored(*value_);
  }
};

}  // namespace torchtap::reductions
