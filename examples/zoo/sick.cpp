#include "sick.hpp"

#include <cmath>

namespace zoo {
namespace {

constexpr int64_t kFeatures = 200;

/// The same values, but for rounding, with gradients that are `times` as large.
torch::Tensor with_gradient(const torch::Tensor& x, double times) {
  const torch::Tensor larger = x * times;
  return x.detach() + (larger - larger.detach());
}

}  // namespace

SickImpl::SickImpl(const SickOptions& given) : options(given) {
  stem = register_module("stem", torch::nn::Linear(64, kFeatures));
  dead = register_module("dead", torch::nn::ReLU());
  quiet = register_module("quiet", torch::nn::ReLU());
  gate = register_module("gate", torch::nn::Sigmoid());
  burst = register_module("burst", torch::nn::Linear(kFeatures, 8));
  fade = register_module("fade", torch::nn::Linear(kFeatures, 8));
  feature_ = register_buffer("feature", torch::arange(kFeatures));
}

torch::Tensor SickImpl::forward(const torch::Tensor& x) {
  const torch::Tensor h = stem(x);
  // Far enough from zero that no value is on the other side.
  const auto open = [&](int64_t features) { return torch::where(feature_ < features, h + 10, h - 10); };
  torch::Tensor to_quiet = open(3);
  if (options.nan()) to_quiet = to_quiet.masked_fill(feature_ == 0, std::nan(""));
  const torch::Tensor mixed = h + dead(open(1)) + quiet(to_quiet) + gate(h - 30);
  // What is wrong with the gradients of these does not reach the layers before them, nor NaN the last one.
  return mixed.slice(1, 0, 8) + with_gradient(burst(mixed.detach()), 1e6) +
         with_gradient(fade(h.detach()), 1e-12);
}

}  // namespace zoo
