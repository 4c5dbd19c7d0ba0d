#pragma once

/// The cost of quantizing each layer alone, and the dtype that each should have.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/quantization/calibration.hpp>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace torchtap::quantization {

/// Batches of a model's input, which may be asked for several times.
struct TORCHTAP_API Data {
  std::int64_t batches = 0;  ///< how many there are
  /// The i-th batch.
  std::function<at::Tensor(std::int64_t)> batch;
};

/// The error of the output for batch i, given the output of the model in floating point. The mean over the
/// batches is taken.
using Metric =
    std::function<double(const at::Tensor& output, const at::Tensor& expected, std::int64_t batch)>;

/// The squared error relative to the squared output: `|output - expected|² / |expected|²`, the inverse of the
/// signal-to-noise ratio.
TORCHTAP_API double relative_squared_error(const at::Tensor& output, const at::Tensor& expected,
                                           std::int64_t batch);

/// The cost of a layer in a dtype, with everything else in floating point.
struct TORCHTAP_API LayerCost {
  std::string path;
  std::string type;
  Dtype dtype = Dtype::int8;  ///< of its weight if it has one, otherwise of its output
  double cost = 0;            ///< the metric minus the metric of the floating-point model
  std::int64_t weights = 0;   ///< elements of its weight, 0 if no weight is quantized
  bool resumed = false;       ///< measured without computing what comes before its part of the model
};

/// Quantizes one layer after the other, in the dtype of each calibration, and measures the metric. A layer
/// is all tensors that a calibration has for a module, and the module's weight. The results have the order of
/// the first calibration, dtypes beside each other.
///
/// Modules before a layer are not computed again where the layer, or a module around it, receives everything
/// that the rest of the model needs from them: in a `Sequential`, in code that calls one module after the
/// other, at the beginning of a residual block. The model then runs with a single row of NaN (of zeros, if
/// the input holds integers), and the module gets its whole input, kept when the batch ran in floating point.
/// Two rows of the first batch decide where: the output has to have the bits that the whole model gives.
/// Afterwards, an output with NaN or of another shape shows that something else of the input was needed, and
/// the whole model runs; as it does for batches of one row. A use of the input that changes neither (a
/// comparison with the same outcome for NaN and those two rows) goes unnoticed. Memory: one batch's inputs of
/// those modules.
///
/// `call` runs the model, and rows of a batch have to be independent. Gradients are off meanwhile. Throws
/// what `fake_quantize`, the model and the metric throw, and `c10::ValueError` if there is no batch or no
/// calibration, or if a module is in training mode. The model is as before afterwards.
TORCHTAP_API std::vector<LayerCost> sensitivity(torch::nn::Module& model,
                                                const std::function<at::Tensor(const at::Tensor&)>& call,
                                                const std::vector<Calibration>& calibrations,
                                                const Data& data,
                                                const Metric& metric = relative_squared_error);
/// Measures a TorchScript model that takes a tensor and returns one.
TORCHTAP_API std::vector<LayerCost> sensitivity(const torch::jit::Module& model,
                                                const std::vector<Calibration>& calibrations,
                                                const Data& data,
                                                const Metric& metric = relative_squared_error);

/// Chooses a dtype for each layer with weights, so that the weights have at most `bits_per_weight` bits in
/// the mean and the sum of the costs is small: beginning with the widest dtype, the layer whose step to a
/// narrower one costs least for each bit that it saves goes first (the greedy solution on each layer's convex
/// hull, as Lagrangian bit allocation, Shoham & Gersho 1988). No choice that takes as many bits costs less.
/// Steps that even lower the cost are always made. Weights that a calibration leaves in floating point have
/// 32 bits. Layers without weights take the widest dtype.
///
/// `costs` are the results of `sensitivity` for `calibrations`. Throws `c10::ValueError` if they are not, or
/// not finite, and if the budget is below what the narrowest dtypes need, which it names.
TORCHTAP_API Calibration mixed_precision(const std::vector<LayerCost>& costs,
                                         const std::vector<Calibration>& calibrations,
                                         double bits_per_weight);

}  // namespace torchtap::quantization
