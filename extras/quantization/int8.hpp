#pragma once

/// A TorchScript model that computes in int8.

#include <torch/csrc/jit/api/module.h>

#include <functional>

#include <torchtap/base/api.hpp>
#include <torchtap/quantization/parameters.hpp>

namespace torchtap::quantization {

/// Converts a TorchScript model to LibTorch's quantized operators (`torch.ops.quantized`), where there are
/// such: convolutions, linear layers, additions, pooling, concatenation. The rest runs in floating point
/// between `dequantize` and `quantize`. The result can be saved and runs in C++ and Python on CPUs, with the
/// quantized engine that is set (`at::globalContext().setQEngine`).
///
/// It is LibTorch's quantization of graphs (`torch.ao.quantization.quantize_jit`) with our statistics: batch
/// norms are folded into convolutions, `run` calls the model that it is given on calibration data, the
/// tensors that operators need are counted in a `LogHistogram`, and `options` says how ranges follow from it.
/// Activations are uint8, as the operators demand, and weights int8, per channel or, if the engine has no
/// operators for that, per tensor; `QuantizationOptions::dtype` and `QuantizationOptions::weights` must not
/// ask for others.
///
/// With engines other than QNNPACK and oneDNN activations have 7 bits, as `reduce_range` has it in Python.
///
/// `model` is not changed, because a copy is converted (`save` and `load` in memory), and has to be in
/// evaluation mode, because only there batch norms can be folded. `run` may use several threads; gradients
/// are off in its own. Throws `c10::ValueError` if the model is in training mode, if no quantized engine is
/// set, if `run` never called the model, if a part that is left in the result never ran, or if nothing in it
/// could be quantized; and LibTorch's errors for a model that it cannot convert.
///
/// LibTorch 1.13 with oneDNN, in Python as in C++, was seen to give wrong outputs once a process has run two
/// models whose activations have different zero points, such as an affine and a symmetric one. QNNPACK does
/// not.
TORCHTAP_API torch::jit::Module to_int8(
    const torch::jit::Module& model, const std::function<void(torch::jit::Module&)>& run,
    const QuantizationOptions& options = QuantizationOptions().dtype(Dtype::uint8));

}  // namespace torchtap::quantization
