#pragma once

/// The quantization of a model: scale and zero point of the tensors between its modules.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/quantization/parameters.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/storage/recording.hpp>

namespace torchtap::quantization {

/// One tensor of a model that is quantized.
struct TORCHTAP_API QuantizedTensor {
  std::string path;       ///< of the module
  std::string type;       ///< of the module: "Conv2d"
  bool input = false;     ///< an input of the module; otherwise an output
  std::int64_t slot = 0;  ///< among the flattened inputs or outputs
  Parameters parameters;  ///< its scale and zero point
  /// The dtype of the module's weights, for its outputs: of all its own parameters of two dimensions or more
  /// (`weight`, `in_proj_weight`, `weight_ih_l0`). Nothing leaves them in floating point.
  std::optional<Dtype> weights;
};

/// The quantized tensors of a model, in the order of the recording. A regular value.
class TORCHTAP_API Calibration {
 public:
  using const_iterator = std::vector<QuantizedTensor>::const_iterator;

  Calibration() = default;
  /// Throws `c10::ValueError` if a tensor comes twice.
  explicit Calibration(std::vector<QuantizedTensor> tensors, std::string method = "",
                       std::vector<std::string> left_out = {});

  std::size_t size() const noexcept { return tensors_.size(); }
  bool empty() const noexcept { return tensors_.empty(); }
  const_iterator begin() const noexcept { return tensors_.begin(); }
  const_iterator end() const noexcept { return tensors_.end(); }
  /// The output 0 of the module at `path`, or else its input 0. Throws `c10::IndexError` that lists the
  /// nearest paths.
  const QuantizedTensor& at(const std::string& path) const&;
  /// For a temporary: returns by value.
  QuantizedTensor at(const std::string& path) && { return at(path); }
  /// "mse": how the ranges were found; "" if unknown.
  const std::string& method() const noexcept { return method_; }
  /// Tensors that `calibrate` left in floating point, because no finite value was recorded of them:
  /// `the output 0 of "head" (Linear)`. Not part of files.
  const std::vector<std::string>& left_out() const& noexcept { return left_out_; }
  /// For a temporary: returns by value.
  std::vector<std::string> left_out() && { return std::move(left_out_); }

  /// Writes a JSON file (extras/quantization/FORMAT.md), whole or not at all. Throws what `json` throws,
  /// `c10::ValueError` if the folder of `path` does not exist, and `c10::Error` with the system's reason if
  /// it fails.
  void save(const std::string& path) const;
  /// Reads it. Throws `c10::ValueError` that names the file and what is wrong: damaged, of a newer version,
  /// scales that are not positive, zero points outside of the dtype.
  static Calibration load(const std::string& path);
  /// The text of the JSON file. Throws `c10::ValueError` for a path that is not UTF-8.
  std::string json() const;

  /// The text of a calibration cache that TensorRT's `IInt8Calibrator::readCalibrationCache` takes: `header`,
  /// and a line for each tensor, "NAME: 3c010a14", the bits of its scale as a float32 in hexadecimal.
  /// TensorRT names tensors as the network does; the names here are paths of modules: "conv1", "conv1.input",
  /// "lstm.output.1". The header is the version of the TensorRT that reads it, "TRT-8601", and the
  /// calibrator's algorithm, "EntropyCalibration2" or "MinMaxCalibration"; it ignores a cache with another
  /// one. Throws `c10::ValueError` if a tensor is not int8, with one scale and the zero point 0.
  std::string tensorrt_cache(const std::string& header = "TRT-8601-EntropyCalibration2") const;

  /// A state_dict for a model that `torch.ao.quantization.prepare` made in Python with observers of minima
  /// and maxima: "conv1.activation_post_process.min_val" and "…max_val" for each output. Saved by
  /// `storage::save` and loaded there by `load_state_dict(torch.load(file), strict=False)`, it replaces the
  /// run over the data. The only input among them is the model's ("quant").
  core::Value observers() const;

 private:
  std::vector<QuantizedTensor> tensors_;
  std::string method_;
  std::vector<std::string> left_out_;
};

/// The parameters of all tensors that were recorded with a reduction that `parameters` takes; modules that
/// never ran are left out, and tensors without a finite value, which `Calibration::left_out` names. An entry
/// does not say which tensor of its module was recorded, so it is taken for the slot 0 unless all were
/// (`recorders::RecorderOptions::all_tensors`).
///
/// Throws `c10::ValueError` that names the module for an entry that it cannot take (kept samples, gradients,
/// distributions that `parameters` refuses), and if no tensor is left.
TORCHTAP_API Calibration calibrate(const storage::Recording& recording,
                                   const QuantizationOptions& options = {});
/// Calibrates from the data of a recorder: `calibrate(recorder.entries())`.
TORCHTAP_API Calibration calibrate(const std::vector<storage::Entry>& entries,
                                   const QuantizationOptions& options = {});

}  // namespace torchtap::quantization
