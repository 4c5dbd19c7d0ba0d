#pragma once

/// UNet (Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015) in its
/// modern form: convolutions are padded and followed by batch norm.

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace zoo {

/// Convolution, batch norm and ReLU, twice: `[N, in_channels, H, W]` to `[N, out_channels, H, W]`.
struct DoubleConvImpl : torch::nn::Module {
  DoubleConvImpl(int64_t in_channels, int64_t out_channels);

  torch::Tensor forward(torch::Tensor x);

  torch::nn::Sequential double_conv{nullptr};
};
TORCH_MODULE(DoubleConv);

/// A step down the contracting path: `[N, in_channels, H, W]` to `[N, out_channels, ⌊H / 2⌋, ⌊W / 2⌋]`.
struct DownImpl : torch::nn::Module {
  DownImpl(int64_t in_channels, int64_t out_channels);

  torch::Tensor forward(torch::Tensor x);

  torch::nn::Sequential maxpool_conv{nullptr};
};
TORCH_MODULE(Down);

/// A step up the expanding path: `[N, in_channels, H, W]` and the features of the contracting path at the
/// next finer resolution, `[N, out_channels, H', W']`, to `[N, out_channels, H', W']`. H' is 2H or 2H + 1,
/// and W' likewise.
struct UpImpl : torch::nn::Module {
  UpImpl(int64_t in_channels, int64_t out_channels);

  torch::Tensor forward(torch::Tensor x, const torch::Tensor& skip);

  torch::nn::ConvTranspose2d up{nullptr};
  DoubleConv conv{nullptr};
};
TORCH_MODULE(Up);

struct UNetOptions {
  UNetOptions(int64_t in_channels, int64_t out_channels)
      : in_channels_(in_channels), out_channels_(out_channels) {}

  /// Channels of the images.
  TORCH_ARG(int64_t, in_channels);
  /// Number of scores per pixel.
  TORCH_ARG(int64_t, out_channels);
  /// Channels at full resolution; each step down doubles them.
  TORCH_ARG(int64_t, width) = 64;
  /// Number of steps down, and up again.
  TORCH_ARG(int64_t, depth) = 4;
};

/// Maps images `[N, in_channels, H, W]` to scores per pixel, `[N, out_channels, H, W]`. H and W must be at
/// least 2^depth, but need not be multiples of it.
struct UNetImpl : torch::nn::Module {
  explicit UNetImpl(const UNetOptions& options);

  torch::Tensor forward(torch::Tensor x);

  DoubleConv inc{nullptr};
  torch::nn::ModuleList downs{nullptr}, ups{nullptr};
  torch::nn::Conv2d outc{nullptr};
};
TORCH_MODULE(UNet);

}  // namespace zoo
