#pragma once

/// Defines `FoldPaired`, which folds samples together with their companions of other modules
/// (`RecorderOptions::with`).

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/recorders/extend/takes.hpp>
#include <torchtap/statistics/detail/pairing.hpp>

namespace torchtap::statistics::detail {

using recorders::extend::Fold;
using recorders::extend::Prepare;
using recorders::extend::Record;
using recorders::extend::Slots;

/// The companions of a recorder: name and tensor.
using Companions = std::vector<std::pair<std::string, recorders::Companion>>;

/// Has whichever comes first wait for the other; then names the companions in a `core::Context` and folds.
class FoldPaired final : public recorders::extend::TakerAround {
 public:
  /// Throws if the options cannot be met: a reduction has to look each companion up, in a forward.
  FoldPaired(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> folds,
             std::shared_ptr<const Companions> named);

  std::vector<hooks::Handle> companions(const std::shared_ptr<Record>& record,
                                        const model::ModuleRef& module) override;
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  void refuse(const hooks::Event& event) override;

  const Slots& slots() const noexcept { return slots_; }
  const Companions& named() const noexcept { return *named_; }
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
  const std::shared_ptr<const Companions> named_;
  std::weak_ptr<FoldPaired> self_;
  std::mutex mutex_;
  std::shared_ptr<const Pairing> pairing_;  // `Recorder::replace` exchanges it
};

/// Has recorders pair their samples with companions.
class Paired final : public recorders::extend::Takes {
 public:
  explicit Paired(Companions named) : named(std::make_shared<const Companions>(std::move(named))) {}
  const char* what() const noexcept override { return "pairs samples with companions"; }
  std::unique_ptr<recorders::extend::Taker> taker(Slots& slots, Prepare& prepare,
                                                  std::unique_ptr<Fold> folds) const override {
    return std::make_unique<FoldPaired>(slots, prepare, std::move(folds), named);
  }

  const std::shared_ptr<const Companions> named;
};

}  // namespace torchtap::statistics::detail
