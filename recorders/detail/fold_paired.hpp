#pragma once

/// Defines `FoldPaired`, which folds samples together with their companions of other modules
/// (`RecorderOptions::with`).

#include <memory>
#include <mutex>
#include <optional>

#include <torchtap/recorders/detail/fold.hpp>
#include <torchtap/recorders/detail/pairing.hpp>

namespace torchtap::recorders::detail {

/// Has whichever comes first wait for the other; then names the companions in a `core::Context` and folds.
class FoldPaired final : public TakerAround {
 public:
  FoldPaired(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> folds);
  /// Throws if the options cannot be met: a reduction has to look each companion up, in a forward.
  static void check(const Slots& slots);

  std::vector<hooks::Handle> companions(const std::shared_ptr<Record>& record,
                                        const model::ModuleRef& module) override;
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  void refuse(const hooks::Event& event) override;

  const Slots& slots() const noexcept { return slots_; }
  /// Called by the hook of the `index`th companion.
  void on_companion(hooks::Event& event, std::size_t index);
  /// Counts the tensors that waited in vain.
  void count_unmatched(const Pair& pair) noexcept;

 private:
  Pair& pair_of(const hooks::Event& event, std::optional<std::size_t> companion = {});
  void forget_sample(Pair& pair) noexcept;
  void add_companion(hooks::Event& event, std::size_t index);
  at::Tensor kept(const at::Tensor& sample, const at::Tensor& original) const;
  core::Context::Names companions_of(const Pair& pair) const;

  Prepare& prepare_;
  std::weak_ptr<FoldPaired> self_;
  std::mutex mutex_;
  std::shared_ptr<const Pairing> pairing_;  // `Recorder::replace` exchanges it
};

}  // namespace torchtap::recorders::detail
