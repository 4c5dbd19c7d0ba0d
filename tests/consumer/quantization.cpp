#include <ATen/Functions.h>

#include <torchtap/quantization/parameters.hpp>
#include <torchtap/reductions/log_histogram.hpp>

namespace q = torchtap::quantization;

int main() {
  torchtap::reductions::LogHistogram seen(torchtap::reductions::LogHistogramOptions().over_all(true));
  seen.update(at::arange(256.0, at::kFloat));
  const auto parameters =
      q::parameters(seen, q::QuantizationOptions().method(q::Method::min_max).dtype(q::Dtype::uint8));
  return parameters.apply(at::arange(200.0)).sub(at::arange(200.0)).abs().max().item<double>() < 0.6 ? 0 : 1;
}
