#pragma once

/// The base of the library's reductions.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

#include <torchtap/base/api.hpp>
#include <torchtap/core/access.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions {

/// The members that all reductions of this library share: they check a sample, find its rows and count them.
class TORCHTAP_API Reduction : public SharesPass {
 public:
  /// Adds a sample, which is read at once and not kept.
  ///
  /// Throws `c10::ValueError` if its shape or device differs from those before, if it lacks a dimension that
  /// is folded, or on a non-finite element under `NonFinite::raise`; `c10::TypeError` on undefined, quantized
  /// and sparse tensors, and on complex ones where numbers need an order. The state is unchanged if it
  /// throws.
  void update(const at::Tensor& sample);
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const;
  /// Samples, or rows under `over(dims)`, or elements under `over_all(true)`.
  std::int64_t count() const noexcept { return intake_.count(); }
  /// Whether samples may arrive in any order, and at several objects that are merged in the end.
  bool commutative() const noexcept { return commutative_; }
  /// The class and its configuration: "Sum(over=[0])".
  std::string describe() const { return intake_.describe(); }

 protected:
  /// Whether samples may come in any order.
  enum class Order { any, matters };

  explicit Reduction(detail::Intake intake, Order order = Order::any)
      : intake_(std::move(intake)), commutative_(order == Order::any) {}
  Reduction(const Reduction&) = default;
  Reduction(Reduction&&) = default;
  Reduction& operator=(const Reduction&) = default;
  Reduction& operator=(Reduction&&) = default;
  ~Reduction() override = default;

  void ask(Pass& pass) const override;
  /// Folds the samples as one, in a pass that the ledger answers.
  void fold_ledger(const detail::Ledger& ledger) override;
  /// Folds a sample like those before, if it is small or was summarised, without ATen. Returns false for any
  /// other sample, and does nothing then.
  virtual bool fold_small(const Pass& pass);
  /// Asks for a summary of each kept element, unless the sample's rows can be folded one by one.
  void ask_rows(Pass& pass, Needs needs) const;
  void check_sample(const Pass& pass) const override;

  detail::Intake intake_;  // NOLINT: of the derived classes, which are ours

 private:
  friend struct core::Access;
  std::string recipe() const { return intake_.name(); }

  bool commutative_;
};

}  // namespace torchtap::reductions
