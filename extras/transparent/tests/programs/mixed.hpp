#pragma once

#include <torch/torch.h>

/// Included by a library compiled without torchtap::transparent and by a program compiled with it.
struct PartImpl : torch::nn::Cloneable<PartImpl> {
  explicit PartImpl(double factor = 2) : factor(factor) { PartImpl::reset(); }
  void reset() override { weight = register_parameter("weight", torch::full({1}, factor)); }
  virtual at::Tensor forward(const at::Tensor& x, double bias = 1) { return x * weight + bias; }
  double factor;
  at::Tensor weight;
};
TORCH_MODULE(Part);

/// Defined in the library.
Part make_part(double factor);
at::Tensor call_part(Part part, const at::Tensor& x);
