#pragma once

/// A variational autoencoder (Kingma and Welling, "Auto-Encoding Variational Bayes", 2013) with one hidden
/// layer on each side. Its modules return structs.

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace zoo {

/// A normal distribution per sample: `[B, latent]`.
struct Gaussian {
  torch::Tensor mean, log_variance;
};

struct VAEOutput {
  torch::Tensor reconstruction;  ///< `[B, features]`, in [0, 1]
  torch::Tensor mean, log_variance;
};

/// Maps `[B, features]` to the distribution of the latent variables.
struct VAEEncoderImpl : torch::nn::Module {
  VAEEncoderImpl(int64_t features, int64_t hidden, int64_t latent);

  Gaussian forward(const torch::Tensor& x);

  torch::nn::Linear fc{nullptr}, mean{nullptr}, log_variance{nullptr};
};
TORCH_MODULE(VAEEncoder);

/// Maps `[B, features]` in [0, 1] to the reconstruction and the latent distribution. Samples from that in
/// training, and uses its mean otherwise.
struct VAEImpl : torch::nn::Module {
  VAEImpl(int64_t features, int64_t hidden, int64_t latent);

  VAEOutput forward(torch::Tensor x);

  VAEEncoder encoder{nullptr};
  torch::nn::Linear fc{nullptr}, out{nullptr};
};
TORCH_MODULE(VAE);

}  // namespace zoo
