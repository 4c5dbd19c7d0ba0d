#pragma once

/// Drop-in names: `torchtap::nn::Linear` is `torch::nn::Linear` with hooks, for modules that are called
/// directly from a forward of the user's own. Constructors, options, options' defaults, parameters and state
/// are those of LibTorch's type, which the hookable one derives from.

#include <torch/nn.h>
#include <torch/version.h>

#include <torchtap/hooks/hooked.hpp>

/// Applies `X` to the name of every module type of LibTorch that has a forward, but for `Sequential`, which
/// needs none of this. A test compares the list with LibTorch's headers.
// clang-format off
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define TORCHTAP_FOR_EACH_NEWER_BUILTIN(X) X(LPPool3d) X(ZeroPad1d) X(ZeroPad3d)
#else
#define TORCHTAP_FOR_EACH_NEWER_BUILTIN(X)
#endif
#define TORCHTAP_FOR_EACH_BUILTIN(X) \
  X(AdaptiveAvgPool1d) X(AdaptiveAvgPool2d) X(AdaptiveAvgPool3d) X(AdaptiveLogSoftmaxWithLoss) \
  X(AdaptiveMaxPool1d) X(AdaptiveMaxPool2d) X(AdaptiveMaxPool3d) X(AlphaDropout) X(AvgPool1d) \
  X(AvgPool2d) X(AvgPool3d) X(BCELoss) X(BCEWithLogitsLoss) X(BatchNorm1d) X(BatchNorm2d) \
  X(BatchNorm3d) X(Bilinear) X(CELU) X(CTCLoss) X(ConstantPad1d) X(ConstantPad2d) X(ConstantPad3d) \
  X(Conv1d) X(Conv2d) X(Conv3d) X(ConvTranspose1d) X(ConvTranspose2d) X(ConvTranspose3d) \
  X(CosineEmbeddingLoss) X(CosineSimilarity) X(CrossEntropyLoss) X(CrossMapLRN2d) X(Dropout) \
  X(Dropout2d) X(Dropout3d) X(ELU) X(Embedding) X(EmbeddingBag) X(FeatureAlphaDropout) X(Flatten) \
  X(Fold) X(FractionalMaxPool2d) X(FractionalMaxPool3d) X(Functional) X(GELU) X(GLU) X(GRU) X(GRUCell) \
  X(GroupNorm) X(Hardshrink) X(Hardtanh) X(HingeEmbeddingLoss) X(HuberLoss) X(Identity) \
  X(InstanceNorm1d) X(InstanceNorm2d) X(InstanceNorm3d) X(KLDivLoss) X(L1Loss) X(LPPool1d) X(LPPool2d) \
  X(LSTM) X(LSTMCell) X(LayerNorm) X(LeakyReLU) X(Linear) X(LocalResponseNorm) X(LogSigmoid) \
  X(LogSoftmax) X(MSELoss) X(MarginRankingLoss) X(MaxPool1d) X(MaxPool2d) X(MaxPool3d) X(MaxUnpool1d) \
  X(MaxUnpool2d) X(MaxUnpool3d) X(Mish) X(MultiLabelMarginLoss) X(MultiLabelSoftMarginLoss) \
  X(MultiMarginLoss) X(MultiheadAttention) X(NLLLoss) X(PReLU) X(PairwiseDistance) X(PixelShuffle) \
  X(PixelUnshuffle) X(PoissonNLLLoss) X(RNN) X(RNNCell) X(RReLU) X(ReLU) X(ReLU6) X(ReflectionPad1d) \
  X(ReflectionPad2d) X(ReflectionPad3d) X(ReplicationPad1d) X(ReplicationPad2d) X(ReplicationPad3d) \
  X(SELU) X(SiLU) X(Sigmoid) X(SmoothL1Loss) X(SoftMarginLoss) X(Softmax) X(Softmax2d) X(Softmin) \
  X(Softplus) X(Softshrink) X(Softsign) X(Tanh) X(Tanhshrink) X(Threshold) X(Transformer) \
  X(TransformerDecoder) X(TransformerDecoderLayer) X(TransformerEncoder) X(TransformerEncoderLayer) \
  X(TripletMarginLoss) X(TripletMarginWithDistanceLoss) X(Unflatten) X(Unfold) X(Upsample) \
  X(ZeroPad2d) TORCHTAP_FOR_EACH_NEWER_BUILTIN(X)
// clang-format on

namespace torchtap::nn {

// Modules whose holders offer more than TORCH_MODULE gives (Embedding::from_pretrained) stay with their own
// static functions: `torch::nn::Embedding::from_pretrained` makes the plain type.
#define TORCHTAP_DROP_IN(Name) TORCHTAP_MODULE_IMPL(Name, torch::nn::Name##Impl);
TORCHTAP_FOR_EACH_BUILTIN(TORCHTAP_DROP_IN)
#undef TORCHTAP_DROP_IN

using torch::nn::Sequential;

}  // namespace torchtap::nn
