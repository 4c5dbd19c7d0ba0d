#include "tagger.hpp"

#include <torch/nn/utils/rnn.h>

#include <tuple>

namespace rnn = torch::nn::utils::rnn;

namespace zoo {

TaggerImpl::TaggerImpl(int64_t vocab, int64_t tags, int64_t width) {
  embedding = register_module("embedding", torch::nn::Embedding(vocab, width));
  lstm = register_module(
      "lstm",
      torch::nn::LSTM(torch::nn::LSTMOptions(width, width / 2).bidirectional(true).batch_first(true)));
  head = register_module("head", torch::nn::Linear(width, tags));
}

torch::Tensor TaggerImpl::forward(const torch::Tensor& tokens, const torch::Tensor& lengths) {
  const auto packed = rnn::pack_padded_sequence(embedding(tokens), lengths, /*batch_first=*/true,
                                                /*enforce_sorted=*/false);
  const auto states = std::get<0>(lstm->forward_with_packed_input(packed));
  const auto padded = rnn::pad_packed_sequence(states, /*batch_first=*/true, /*padding_value=*/0.0,
                                               /*total_length=*/tokens.size(1));
  return head(std::get<0>(padded));
}

}  // namespace zoo
