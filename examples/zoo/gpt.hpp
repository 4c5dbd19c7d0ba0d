#pragma once

/// A decoder-only transformer (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019)
/// with the structure and initialisation of GPT-2, except that the head does not share weights with the
/// embedding.

#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

namespace zoo {

struct GPTOptions {
  explicit GPTOptions(int64_t vocab) : vocab_(vocab) {}

  /// Number of different tokens.
  TORCH_ARG(int64_t, vocab);
  /// The maximal length of a sequence.
  TORCH_ARG(int64_t, context) = 128;
  /// Number of blocks.
  TORCH_ARG(int64_t, layers) = 4;
  /// Attention heads per block; the width is divided among them.
  TORCH_ARG(int64_t, heads) = 4;
  /// Features per token, a multiple of `heads`.
  TORCH_ARG(int64_t, width) = 128;
  TORCH_ARG(double, dropout) = 0.1;
};

/// Causal self-attention: `[B, T, width]` to `[B, T, width]`.
struct CausalSelfAttentionImpl : torch::nn::Module {
  explicit CausalSelfAttentionImpl(const GPTOptions& options);

  torch::Tensor forward(torch::Tensor x);

  int64_t heads;
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, proj{nullptr};
  torch::nn::Dropout attn_drop{nullptr}, resid_drop{nullptr};
  torch::Tensor mask;  ///< `[context, context]`: 1 where the row attends to the column, 0 elsewhere

 private:
  torch::Tensor split_heads(const torch::Tensor& x) const;
};
TORCH_MODULE(CausalSelfAttention);

/// Two layers at each position with a hidden width of 4 * width: `[B, T, width]` to `[B, T, width]`.
struct MLPImpl : torch::nn::Module {
  explicit MLPImpl(const GPTOptions& options);

  torch::Tensor forward(torch::Tensor x);

  torch::nn::Linear fc{nullptr}, proj{nullptr};
  torch::nn::GELU gelu{nullptr};
  torch::nn::Dropout drop{nullptr};
};
TORCH_MODULE(MLP);

/// Attention and MLP, each after a layer norm and with a shortcut: `[B, T, width]` to `[B, T, width]`.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GPTOptions& options);

  torch::Tensor forward(torch::Tensor x);

  torch::nn::LayerNorm ln1{nullptr}, ln2{nullptr};
  CausalSelfAttention attn{nullptr};
  MLP mlp{nullptr};
};
TORCH_MODULE(Block);

/// Maps tokens `[B, T]` int64 to logits of the next token, `[B, T, vocab]`. T is at most the context.
struct GPTImpl : torch::nn::Module {
  explicit GPTImpl(const GPTOptions& options);

  torch::Tensor forward(const torch::Tensor& tokens);

  torch::nn::Embedding tok_emb{nullptr}, pos_emb{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::ModuleList blocks{nullptr};
  torch::nn::LayerNorm ln_f{nullptr};
  torch::nn::Linear head{nullptr};

 private:
  void initialize();
};
TORCH_MODULE(GPT);

}  // namespace zoo
