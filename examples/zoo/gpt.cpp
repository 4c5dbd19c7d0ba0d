#include "gpt.hpp"

#include <torch/nn/init.h>

#include <cmath>
#include <limits>

namespace zoo {
namespace {

torch::nn::LayerNorm layer_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

CausalSelfAttentionImpl::CausalSelfAttentionImpl(const GPTOptions& options) : heads(options.heads()) {
  const int64_t width = options.width();
  TORCH_CHECK_VALUE(width % heads == 0, "GPT: ", heads, " heads do not divide a width of ", width, ".");
  query = register_module("query", torch::nn::Linear(width, width));
  key = register_module("key", torch::nn::Linear(width, width));
  value = register_module("value", torch::nn::Linear(width, width));
  proj = register_module("proj", torch::nn::Linear(width, width));
  attn_drop = register_module("attn_drop", torch::nn::Dropout(options.dropout()));
  resid_drop = register_module("resid_drop", torch::nn::Dropout(options.dropout()));
  mask = register_buffer("mask", torch::ones({options.context(), options.context()}).tril());
}

/// `[B, T, width]` to `[B, heads, T, width / heads]`.
torch::Tensor CausalSelfAttentionImpl::split_heads(const torch::Tensor& x) const {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

torch::Tensor CausalSelfAttentionImpl::forward(torch::Tensor x) {
  const int64_t T = x.size(1);
  const torch::Tensor q = split_heads(query(x));
  const torch::Tensor k = split_heads(key(x));
  const torch::Tensor v = split_heads(value->forward(x));

  torch::Tensor att = torch::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
  // A comparison instead of a bool buffer: Module::to(dtype) converts buffers too.
  const torch::Tensor hidden = mask.slice(0, 0, T).slice(1, 0, T) == 0;
  att = att.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  att = attn_drop(torch::softmax(att, /*dim=*/-1));

  const torch::Tensor y = torch::matmul(att, v).transpose(1, 2).flatten(/*start_dim=*/2);
  return resid_drop->forward(proj->forward(y));
}

MLPImpl::MLPImpl(const GPTOptions& options) {
  const int64_t width = options.width();
  fc = register_module("fc", torch::nn::Linear(width, 4 * width));
  gelu = register_module("gelu", torch::nn::GELU());
  proj = register_module("proj", torch::nn::Linear(4 * width, width));
  drop = register_module("drop", torch::nn::Dropout(options.dropout()));
}

torch::Tensor MLPImpl::forward(torch::Tensor x) {
  return drop(proj(gelu(fc(x))));
}

BlockImpl::BlockImpl(const GPTOptions& options) {
  ln1 = register_module("ln1", layer_norm(options.width()));
  attn = register_module("attn", CausalSelfAttention(options));
  ln2 = register_module("ln2", layer_norm(options.width()));
  mlp = register_module("mlp", MLP(options));
}

torch::Tensor BlockImpl::forward(torch::Tensor x) {
  x = x + attn(ln1(x));
  return x + mlp->forward(ln2->forward(x));
}

GPTImpl::GPTImpl(const GPTOptions& options) {
  tok_emb = register_module("tok_emb", torch::nn::Embedding(options.vocab(), options.width()));
  pos_emb = register_module("pos_emb", torch::nn::Embedding(options.context(), options.width()));
  drop = register_module("drop", torch::nn::Dropout(options.dropout()));
  blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t layer = 0; layer < options.layers(); ++layer) blocks->push_back(Block(options));
  ln_f = register_module("ln_f", layer_norm(options.width()));
  head = register_module(
      "head", torch::nn::Linear(torch::nn::LinearOptions(options.width(), options.vocab()).bias(false)));
  initialize();
}

void GPTImpl::initialize() {
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* linear = module->as<torch::nn::Linear>()) {
      torch::nn::init::normal_(linear->weight, 0, 0.02);
      if (linear->bias.defined()) torch::nn::init::zeros_(linear->bias);
    } else if (auto* embedding = module->as<torch::nn::Embedding>()) {
      torch::nn::init::normal_(embedding->weight, 0, 0.02);
    }
  }
}

torch::Tensor GPTImpl::forward(const torch::Tensor& tokens) {
  const int64_t T = tokens.size(1);
  TORCH_CHECK_VALUE(T <= pos_emb->options.num_embeddings(), "GPT: ", T,
                    " tokens are more than the context of ", pos_emb->options.num_embeddings(), ".");
  const torch::Tensor positions = torch::arange(T, tokens.options());
  torch::Tensor x = drop(tok_emb(tokens) + pos_emb(positions));
  for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
  return head(ln_f(x));
}

}  // namespace zoo
