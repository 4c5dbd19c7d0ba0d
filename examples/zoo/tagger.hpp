#pragma once

/// A tagger of sequences of different lengths: embeddings and a bidirectional LSTM, which skips the padding.

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace zoo {

/// Maps tokens `[B, T]` int64 with lengths `[B]`, int64 on the CPU, to scores of each tag, `[B, T, tags]`.
struct TaggerImpl : torch::nn::Module {
  TaggerImpl(int64_t vocab, int64_t tags, int64_t width);

  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& lengths);

  torch::nn::Embedding embedding{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Tagger);

}  // namespace zoo
