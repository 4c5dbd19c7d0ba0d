#pragma once

/// A model in floating point that computes with rounded weights and activations, so that the accuracy after
/// quantization is measured and not guessed.

#include <memory>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/quantization/calibration.hpp>
#include <torchtap/selectors/walk.hpp>

namespace torchtap::quantization {

/// A quantized model, until it is destroyed: then hooks and rounded weights are gone, and each weight is the
/// tensor with the bits that it was. Move-only.
class [[nodiscard]] TORCHTAP_API FakeQuantized {
 public:
  FakeQuantized() noexcept;
  FakeQuantized(FakeQuantized&&) noexcept;
  FakeQuantized& operator=(FakeQuantized&&) noexcept;
  ~FakeQuantized();

  /// Ends the quantization; a second call does nothing. Not while a forward runs.
  void remove() noexcept;
  /// How many activations and how many weights are rounded.
  std::int64_t activations() const noexcept;
  /// How many weights are rounded.
  std::int64_t weights() const noexcept;

 private:
  friend FakeQuantized fake_quantize(const selectors::ModuleView& model, const Calibration& calibration);
  struct State;
  explicit FakeQuantized(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// Rounds the tensors of `calibration` in each forward, by hooks that replace them, and the weights of those
/// modules at once. Weights are rounded per channel (`weight_parameters`; the axis of transposed convolutions
/// is 1). The rounded values are in new memory: a parameter keeps its identity, not its storage.
///
/// Gradients pass through as for `at::fake_quantize_per_tensor_affine`, and reach the parameters; updates of
/// an optimizer to rounded weights are lost with them. A backward through a forward on the other side of
/// `fake_quantize` or `remove` is LibTorch's error of a tensor that was changed in place.
///
/// Throws `c10::ValueError` that names all paths that the model lacks, or a weight that another
/// `FakeQuantized` rounds, and all errors of `hooks::attach` and `weight_parameters`; nothing is changed
/// then.
///
/// A frozen TorchScript model has no modules (`torch.jit.freeze`).
TORCHTAP_API FakeQuantized fake_quantize(const selectors::ModuleView& model, const Calibration& calibration);

}  // namespace torchtap::quantization
