#pragma once

/// Defines the base of user-defined reductions that need only the `Summary` of a sample.

#include <ATen/core/Tensor.h>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions {

/// The base of a reduction of your own that needs no more of a sample than the `Summary` of its elements, and
/// shares the pass over it with others, say in a `Series`. `Derived` is the reduction; it says how it folds a
/// summary:
///
///     class Range : public reductions::FromSummary<Range> {
///      public:
///       void fold_summary(const reductions::Summary& sample) { … }
///       void merge(const Range& other);
///       std::int64_t count() const;
///       core::Results results() const;
///     };
///
/// `fold_summary` must not throw. Samples of any real dtype and any device are summarised; on devices other
/// than the CPU this synchronises.
template <class Derived>
class FromSummary : public SharesPass {
 public:
  /// Folds the summary of a sample in. Throws `c10::TypeError` for a sample that is not of real numbers; the
  /// state is unchanged then.
  void update(const at::Tensor& sample) {
    Pass pass(sample);
    pass.ask(*this);
    pass.fold_into(*this);
  }
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const {
    Pass pass(sample);
    pass.ask(*this);
    pass.check(*this);
  }

 private:
  void ask(Pass& pass) const override { pass.ask_total({/*moments=*/true, /*zeros=*/true}); }
  void check_sample(const Pass& pass) const override { (void)pass.total(); }
  void fold(const Pass& pass) override { static_cast<Derived*>(this)->fold_summary(pass.total()); }
};

}  // namespace torchtap::reductions
