#pragma once

/// Numbers about a tensor of a module, which rules judge.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::rules {

/// The kinds of tensors of a module.
enum class Tensor : std::uint8_t { input, output, gradient, parameter };
/// "input", "output", "gradient" or "parameter".
TORCHTAP_API std::string_view name_of(Tensor tensor) noexcept;

/// A bin of a histogram: `count` values from `low` to `high`.
struct Bin {
  double low = 0, high = 0, count = 0;  ///< the borders, and how many values
};

/// The measurements of one tensor over one call or many. A number that was not measured is absent; a rule
/// that needs it then does not judge.
struct TORCHTAP_API Facts {
  std::string path;                ///< of the module
  std::string type;                ///< of the module: "ReLU", "torch::nn::ReLUImpl" or "__torch__.….ReLU"
  Tensor tensor = Tensor::output;  ///< which tensor of the module
  std::int64_t slot = 0;           ///< among the flattened inputs, outputs or gradients
  bool leaf = true;                ///< whether no module is inside of it
  std::optional<double> calls;     ///< of the module; 0: it never ran, although the model did
  std::optional<double> count;     ///< all elements, also NaN and infinities
  /// How many; without `count`, more than 0 if there are any.
  std::optional<double> nan, inf, zeros;
  /// Statistics of the finite elements.
  std::optional<double> min, max, mean, rms, std;
  /// The share of channels in which less than 1 % of the elements are nonzero.
  std::optional<double> inactive_channels;
  /// Finite elements other than zeros, in ascending order, with `zeros`; empty if they were not counted.
  std::vector<Bin> bins;
  /// The last steps of a parameter that has a gradient, |after - before| / |before|, oldest first.
  std::vector<double> updates;
  /// The number of dimensions of a parameter. Parameters of one dimension (biases, weights of norms) may be
  /// zero and change quickly.
  std::int64_t dimensions = 2;
};

}  // namespace torchtap::rules
