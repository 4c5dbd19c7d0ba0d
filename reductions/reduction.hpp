#pragma once

/// The base of the library's reductions.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
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

  /// What the summary of a kept element must have, if this reduction takes summaries.
  virtual std::optional<Needs> needs() const { return std::nullopt; }
  /// Asks for a summary of each kept element, unless the sample's rows can be folded one by one.
  void ask(Pass& pass) const override;
  bool ask_ledger(detail::Ledger& ledger) const override;
  /// Combines the state with the sample, in the form that whoever read it has it in, and counts its rows.
  void fold(const Pass& pass) override;
  /// Folds the samples as one, in a pass that the ledger answers.
  void fold_ledger(const detail::Ledger& ledger) override;
  void check_sample(const Pass& pass) const override;

  // The forms that a sample like those before comes in. False, and nothing is done, if it cannot be combined
  // so.
  /// The rows of a small sample.
  virtual bool combine_lines(const detail::Lines& /*lines*/) { return false; }
  /// All elements of a small sample, each of them a row.
  virtual bool combine_all(const detail::Memory& /*all*/) { return false; }
  /// A summary of each kept element.
  virtual bool combine_summaries(c10::ArrayRef<Summary> /*kept*/) { return false; }
  /// Combines any sample, by operations of ATen unless `kept` has a summary of each kept element.
  virtual void combine_rows(const Pass& /*pass*/, const detail::Rows& /*rows*/,
                            c10::ArrayRef<Summary> /*kept*/) {}

  detail::Intake intake_;  // NOLINT: of the derived classes, which are ours

 private:
  friend struct core::Access;
  bool fold_small(const Pass& pass);
  c10::ArrayRef<Summary> summaries(const Pass& pass) const;
  std::string recipe() const { return intake_.name(); }

  bool commutative_;
};

}  // namespace torchtap::reductions
