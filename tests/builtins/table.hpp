#pragma once

// Every module type of LibTorch, with arguments for its constructor and inputs for its forward, in groups
// that seed the generator themselves. Whoever includes this defines CHECK_TYPE(Linear, (4, 3), in(rand({2,
// 4}))): the constructor's arguments, then forward's.

#include <torch/torch.h>

#include <array>

namespace builtins {

inline at::Tensor rand(at::IntArrayRef sizes) {
  return at::randn(sizes).set_requires_grad(true);
}
inline at::Tensor ints(std::int64_t below, at::IntArrayRef sizes) {
  return at::randint(below, sizes, at::kLong);
}
inline at::Tensor signs(at::IntArrayRef sizes) {
  return at::randint(2, sizes).mul_(2).sub_(1);
}
inline at::Tensor probabilities(at::IntArrayRef sizes) {
  return at::rand(sizes).mul_(0.8).add_(0.1).set_requires_grad(true);
}

template <class... Ts>
std::array<at::Tensor, sizeof...(Ts)> in(Ts... tensors) {
  return {tensors...};
}

inline void layers() {
  at::manual_seed(0);
  CHECK_TYPE(Linear, (4, 3), in(rand({2, 4})));
  CHECK_TYPE(Bilinear, (4, 3, 2), in(rand({2, 4}), rand({2, 3})));
  CHECK_TYPE(Identity, (), in(rand({2, 4})));
  CHECK_TYPE(Flatten, (), in(rand({2, 4, 3})));
  CHECK_TYPE(Unflatten, (torch::nn::UnflattenOptions(1, {2, 2})), in(rand({3, 4})));
  CHECK_TYPE(Functional, (torch::relu), in(rand({2, 4})));
  CHECK_TYPE(Embedding, (10, 3), in(ints(10, {2, 4})));
  CHECK_TYPE(EmbeddingBag, (10, 3), in(ints(10, {2, 4})));
  CHECK_TYPE(Conv1d, (4, 3, 2), in(rand({2, 4, 6})));
  CHECK_TYPE(Conv2d, (2, 3, 2), in(rand({2, 2, 6, 6})));
  CHECK_TYPE(Conv3d, (2, 3, 2), in(rand({2, 2, 4, 4, 4})));
  CHECK_TYPE(ConvTranspose1d, (4, 3, 2), in(rand({2, 4, 6})));
  CHECK_TYPE(ConvTranspose2d, (2, 3, 2), in(rand({2, 2, 6, 6})));
  CHECK_TYPE(ConvTranspose3d, (2, 3, 2), in(rand({2, 2, 4, 4, 4})));
  CHECK_TYPE(Fold, (torch::nn::FoldOptions({4, 5}, {2, 2})), in(rand({1, 12, 12})));
  CHECK_TYPE(Unfold, (2), in(rand({2, 3, 4, 5})));
  CHECK_TYPE(PixelShuffle, (2), in(rand({1, 8, 3, 3})));
  CHECK_TYPE(PixelUnshuffle, (2), in(rand({1, 2, 6, 6})));
  CHECK_TYPE(Upsample,
             (torch::nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)),
             in(rand({1, 2, 3, 3})));
  CHECK_TYPE(CosineSimilarity, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(PairwiseDistance, (), in(rand({3, 4}), rand({3, 4})));
}

inline void activations() {
  at::manual_seed(0);
  CHECK_TYPE(ELU, (), in(rand({2, 4})));
  CHECK_TYPE(SELU, (), in(rand({2, 4})));
  CHECK_TYPE(CELU, (), in(rand({2, 4})));
  CHECK_TYPE(GELU, (), in(rand({2, 4})));
  CHECK_TYPE(GLU, (), in(rand({2, 4})));
  CHECK_TYPE(Hardshrink, (), in(rand({2, 4})));
  CHECK_TYPE(Hardtanh, (), in(rand({2, 4})));
  CHECK_TYPE(LeakyReLU, (), in(rand({2, 4})));
  CHECK_TYPE(LogSigmoid, (), in(rand({2, 4})));
  CHECK_TYPE(LogSoftmax, (1), in(rand({2, 4})));
  CHECK_TYPE(Mish, (), in(rand({2, 4})));
  CHECK_TYPE(PReLU, (), in(rand({2, 4})));
  CHECK_TYPE(RReLU, (), in(rand({2, 4})));
  CHECK_TYPE(ReLU, (), in(rand({2, 4})));
  CHECK_TYPE(ReLU6, (), in(rand({2, 4})));
  CHECK_TYPE(SiLU, (), in(rand({2, 4})));
  CHECK_TYPE(Sigmoid, (), in(rand({2, 4})));
  CHECK_TYPE(Softmax, (1), in(rand({2, 4})));
  CHECK_TYPE(Softmax2d, (), in(rand({2, 3, 4, 4})));
  CHECK_TYPE(Softmin, (1), in(rand({2, 4})));
  CHECK_TYPE(Softplus, (), in(rand({2, 4})));
  CHECK_TYPE(Softshrink, (), in(rand({2, 4})));
  CHECK_TYPE(Softsign, (), in(rand({2, 4})));
  CHECK_TYPE(Tanh, (), in(rand({2, 4})));
  CHECK_TYPE(Tanhshrink, (), in(rand({2, 4})));
  CHECK_TYPE(Threshold, (0.1, 20.0), in(rand({2, 4})));
}

inline void normalisation_and_dropout() {
  at::manual_seed(0);
  CHECK_TYPE(BatchNorm1d, (4), in(rand({3, 4})));
  CHECK_TYPE(BatchNorm2d, (4), in(rand({3, 4, 2, 2})));
  CHECK_TYPE(BatchNorm3d, (4), in(rand({3, 4, 2, 2, 2})));
  CHECK_TYPE(InstanceNorm1d, (torch::nn::InstanceNorm1dOptions(4).affine(true).track_running_stats(true)),
             in(rand({3, 4, 5})));
  CHECK_TYPE(InstanceNorm2d, (4), in(rand({3, 4, 2, 2})));
  CHECK_TYPE(InstanceNorm3d, (4), in(rand({3, 4, 2, 2, 2})));
  CHECK_TYPE(LayerNorm, (torch::nn::LayerNormOptions({4})), in(rand({3, 4})));
  CHECK_TYPE(GroupNorm, (2, 4), in(rand({3, 4, 2})));
  CHECK_TYPE(LocalResponseNorm, (2), in(rand({3, 4, 5})));
  CHECK_TYPE(CrossMapLRN2d, (3), in(rand({3, 4, 5, 5})));
  CHECK_TYPE(Dropout, (), in(rand({8, 8})));
  CHECK_TYPE(Dropout2d, (), in(rand({8, 8, 2, 2})));
  CHECK_TYPE(Dropout3d, (), in(rand({8, 8, 2, 2, 2})));
  CHECK_TYPE(AlphaDropout, (), in(rand({8, 8})));
  CHECK_TYPE(FeatureAlphaDropout, (), in(rand({8, 8, 2})));
}

inline void padding_and_pooling() {
  at::manual_seed(0);
  CHECK_TYPE(ConstantPad1d, (1, 2.0), in(rand({1, 2, 4})));
  CHECK_TYPE(ConstantPad2d, (1, 2.0), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(ConstantPad3d, (1, 2.0), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(ReflectionPad1d, (1), in(rand({1, 2, 4})));
  CHECK_TYPE(ReflectionPad2d, (1), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(ReflectionPad3d, (1), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(ReplicationPad1d, (1), in(rand({1, 2, 4})));
  CHECK_TYPE(ReplicationPad2d, (1), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(ReplicationPad3d, (1), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(ZeroPad2d, (1), in(rand({1, 2, 4, 4})));
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  CHECK_TYPE(ZeroPad1d, (1), in(rand({1, 2, 4})));
  CHECK_TYPE(ZeroPad3d, (1), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(LPPool3d, (2.0, 2), in(probabilities({1, 2, 4, 4, 4})));
#endif
  CHECK_TYPE(AvgPool1d, (2), in(rand({1, 2, 4})));
  CHECK_TYPE(AvgPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(AvgPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(MaxPool1d, (2), in(rand({1, 2, 4})));
  CHECK_TYPE(MaxPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(MaxPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(LPPool1d, (2.0, 2), in(probabilities({1, 2, 4})));
  CHECK_TYPE(LPPool2d, (2.0, 2), in(probabilities({1, 2, 4, 4})));
  CHECK_TYPE(AdaptiveAvgPool1d, (2), in(rand({1, 2, 4})));
  CHECK_TYPE(AdaptiveAvgPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(AdaptiveAvgPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(AdaptiveMaxPool1d, (2), in(rand({1, 2, 4})));
  CHECK_TYPE(AdaptiveMaxPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(AdaptiveMaxPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(FractionalMaxPool2d, (torch::nn::FractionalMaxPool2dOptions(2).output_size(2)),
             in(rand({1, 2, 5, 5})));
  CHECK_TYPE(FractionalMaxPool3d, (torch::nn::FractionalMaxPool3dOptions(2).output_size(2)),
             in(rand({1, 2, 5, 5, 5})));
  const auto evens = at::tensor({0, 2, 4, 6}, at::kLong);
  CHECK_TYPE(MaxUnpool1d, (2), in(rand({1, 1, 4}), evens.view({1, 1, 4})));
  CHECK_TYPE(MaxUnpool2d, (2), in(rand({1, 1, 2, 2}), evens.view({1, 1, 2, 2})));
  CHECK_TYPE(MaxUnpool3d, (2), in(rand({1, 1, 1, 2, 2}), evens.view({1, 1, 1, 2, 2})));
}

inline void losses() {
  at::manual_seed(0);
  CHECK_TYPE(L1Loss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(MSELoss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(SmoothL1Loss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(HuberLoss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(KLDivLoss, (torch::nn::KLDivLossOptions().reduction(torch::kSum)),
             in(rand({3, 4}), at::rand({3, 4})));
  CHECK_TYPE(BCELoss, (), in(probabilities({3, 4}), at::rand({3, 4})));
  CHECK_TYPE(BCEWithLogitsLoss, (), in(rand({3, 4}), at::rand({3, 4})));
  CHECK_TYPE(CrossEntropyLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK_TYPE(NLLLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK_TYPE(PoissonNLLLoss, (), in(rand({3, 4}), at::rand({3, 4})));
  CHECK_TYPE(SoftMarginLoss, (), in(rand({3, 4}), signs({3, 4})));
  CHECK_TYPE(HingeEmbeddingLoss, (), in(rand({3, 4}), signs({3, 4})));
  CHECK_TYPE(MultiMarginLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK_TYPE(MultiLabelMarginLoss, (), in(rand({3, 4}), ints(4, {3, 4})));
  CHECK_TYPE(MultiLabelSoftMarginLoss, (), in(rand({3, 4}), ints(2, {3, 4}).to(at::kFloat)));
  CHECK_TYPE(CosineEmbeddingLoss, (), in(rand({3, 4}), rand({3, 4}), signs({3})));
  CHECK_TYPE(MarginRankingLoss, (), in(rand({3}), rand({3}), signs({3})));
  CHECK_TYPE(TripletMarginLoss, (), in(rand({3, 4}), rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(TripletMarginWithDistanceLoss, (), in(rand({3, 4}), rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(CTCLoss, (),
             in(at::randn({6, 2, 5}).log_softmax(2).set_requires_grad(true), ints(4, {2, 3}).add(1),
                at::full({2}, 6, at::kLong), at::full({2}, 3, at::kLong)));
  CHECK_TYPE(AdaptiveLogSoftmaxWithLoss, (torch::nn::AdaptiveLogSoftmaxWithLossOptions(16, 12, {3, 6})),
             in(rand({5, 16}), at::tensor({0, 2, 4, 5, 11}, at::kLong)));
}

inline void recurrent() {
  at::manual_seed(0);
  CHECK_TYPE(RNN, (4, 3), in(rand({5, 2, 4})));
  CHECK_TYPE(GRU, (torch::nn::GRUOptions(4, 3).batch_first(true).num_layers(2).dropout(0.5)),
             in(rand({5, 2, 4}), rand({2, 5, 3})));
  CHECK_TYPE(LSTM, (4, 3), in(rand({5, 2, 4})));
  CHECK_TYPE(RNNCell, (4, 3), in(rand({2, 4})));
  CHECK_TYPE(GRUCell, (4, 3), in(rand({2, 4}), rand({2, 3})));
  CHECK_TYPE(LSTMCell, (4, 3), in(rand({2, 4})));
}

inline void attention() {
  at::manual_seed(0);
  using namespace torch::nn;
  CHECK_TYPE(MultiheadAttention, (4, 2), in(rand({3, 2, 4}), rand({5, 2, 4}), rand({5, 2, 4})));
  CHECK_TYPE(TransformerEncoderLayer, (TransformerEncoderLayerOptions(4, 2).dim_feedforward(8)),
             in(rand({3, 2, 4})));
  CHECK_TYPE(TransformerDecoderLayer, (TransformerDecoderLayerOptions(4, 2).dim_feedforward(8)),
             in(rand({3, 2, 4}), rand({5, 2, 4})));
  CHECK_TYPE(
      TransformerEncoder,
      (TransformerEncoderOptions(
          torch::nn::TransformerEncoderLayer(TransformerEncoderLayerOptions(4, 2).dim_feedforward(8)), 2)),
      in(rand({3, 2, 4})));
  CHECK_TYPE(
      TransformerDecoder,
      (TransformerDecoderOptions(
          torch::nn::TransformerDecoderLayer(TransformerDecoderLayerOptions(4, 2).dim_feedforward(8)), 2)),
      in(rand({3, 2, 4}), rand({5, 2, 4})));
  CHECK_TYPE(Transformer, (TransformerOptions(4, 2, 1, 1).dim_feedforward(8)),
             in(rand({3, 2, 4}), rand({5, 2, 4})));
}

inline void all() {
  layers();
  activations();
  normalisation_and_dropout();
  padding_and_pooling();
  losses();
  recurrent();
  attention();
}

}  // namespace builtins
