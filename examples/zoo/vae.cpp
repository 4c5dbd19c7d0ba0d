#include "vae.hpp"

namespace zoo {

VAEEncoderImpl::VAEEncoderImpl(int64_t features, int64_t hidden, int64_t latent) {
  fc = register_module("fc", torch::nn::Linear(features, hidden));
  mean = register_module("mean", torch::nn::Linear(hidden, latent));
  log_variance = register_module("log_variance", torch::nn::Linear(hidden, latent));
}

Gaussian VAEEncoderImpl::forward(const torch::Tensor& x) {
  const torch::Tensor hidden = torch::relu(fc(x));
  return {mean(hidden), log_variance(hidden)};
}

VAEImpl::VAEImpl(int64_t features, int64_t hidden, int64_t latent) {
  encoder = register_module("encoder", VAEEncoder(features, hidden, latent));
  fc = register_module("fc", torch::nn::Linear(latent, hidden));
  out = register_module("out", torch::nn::Linear(hidden, features));
}

VAEOutput VAEImpl::forward(torch::Tensor x) {
  const Gaussian code = encoder(x);
  torch::Tensor z = code.mean;
  if (is_training()) z = z + torch::randn_like(z) * torch::exp(code.log_variance / 2);
  return {torch::sigmoid(out(torch::relu(fc(z)))), code.mean, code.log_variance};
}

}  // namespace zoo
