#pragma once

// LibTorch's module types that have a forward, except `Sequential`, which is reached through its entries. A
// test compares the list with LibTorch's headers.

#include <torch/version.h>

// Module types by the number of their forward's parameters: `X(Name)`. LibTorch exports a symbol for each.
// clang-format off
#define TORCHTAP_BUILTINS_1(X) \
  X(AdaptiveAvgPool1d) X(AdaptiveAvgPool2d) X(AdaptiveAvgPool3d) X(AdaptiveMaxPool1d) X(AdaptiveMaxPool2d) \
  X(AdaptiveMaxPool3d) X(AlphaDropout) X(AvgPool1d) X(AvgPool2d) X(AvgPool3d) X(CELU) X(Conv1d) X(Conv2d) \
  X(Conv3d) X(CrossMapLRN2d) X(Dropout) X(Dropout2d) X(Dropout3d) X(ELU) X(Embedding) \
  X(FeatureAlphaDropout) X(Flatten) X(Fold) X(FractionalMaxPool2d) X(FractionalMaxPool3d) X(Functional) \
  X(GELU) X(GLU) X(GroupNorm) X(Hardshrink) X(Hardtanh) X(Identity) X(LPPool1d) X(LPPool2d) X(LayerNorm) \
  X(LeakyReLU) X(Linear) X(LocalResponseNorm) X(LogSigmoid) X(LogSoftmax) X(MaxPool1d) X(MaxPool2d) \
  X(MaxPool3d) X(Mish) X(PReLU) X(PixelShuffle) X(PixelUnshuffle) X(RReLU) X(ReLU) X(ReLU6) X(SELU) \
  X(SiLU) X(Sigmoid) X(Softmax) X(Softmax2d) X(Softmin) X(Softplus) X(Softshrink) X(Softsign) X(Tanh) \
  X(Tanhshrink) X(Threshold) X(Unflatten) X(Unfold) X(Upsample)
#define TORCHTAP_BUILTINS_2(X) \
  X(AdaptiveLogSoftmaxWithLoss) X(BCELoss) X(BCEWithLogitsLoss) X(Bilinear) X(ConvTranspose1d) \
  X(ConvTranspose2d) X(ConvTranspose3d) X(CosineSimilarity) X(CrossEntropyLoss) X(GRU) X(GRUCell) \
  X(HingeEmbeddingLoss) X(HuberLoss) X(KLDivLoss) X(L1Loss) X(LSTM) X(LSTMCell) X(MSELoss) \
  X(MultiLabelMarginLoss) X(MultiLabelSoftMarginLoss) X(MultiMarginLoss) X(NLLLoss) X(PairwiseDistance) \
  X(PoissonNLLLoss) X(RNN) X(RNNCell) X(SmoothL1Loss) X(SoftMarginLoss)
#define TORCHTAP_BUILTINS_3(X) \
  X(CosineEmbeddingLoss) X(EmbeddingBag) X(MarginRankingLoss) X(MaxUnpool1d) X(MaxUnpool2d) \
  X(MaxUnpool3d) X(TransformerEncoder) X(TransformerEncoderLayer) X(TripletMarginLoss) \
  X(TripletMarginWithDistanceLoss)
#define TORCHTAP_BUILTINS_4(X) X(CTCLoss)
#define TORCHTAP_BUILTINS_6(X) X(TransformerDecoder) X(TransformerDecoderLayer)
#define TORCHTAP_BUILTINS_7(X) X(MultiheadAttention)
#define TORCHTAP_BUILTINS_8(X) X(Transformer)

// Types whose forward is a member of a class template: `X(Template, D, Name)`.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define TORCHTAP_BUILTINS_1_BY_VERSION(X) X(LPPool3d)
#define TORCHTAP_BUILTINS_ZERO_PAD(X) \
  X(ZeroPadImpl, 1, ZeroPad1d) X(ZeroPadImpl, 2, ZeroPad2d) X(ZeroPadImpl, 3, ZeroPad3d)
#else
#define TORCHTAP_BUILTINS_1_BY_VERSION(X) X(ZeroPad2d)
#define TORCHTAP_BUILTINS_ZERO_PAD(X)
#endif
#define TORCHTAP_BUILTINS_TEMPLATE(X) \
  X(ConstantPadImpl, 1, ConstantPad1d) X(ConstantPadImpl, 2, ConstantPad2d) \
  X(ConstantPadImpl, 3, ConstantPad3d) X(ReflectionPadImpl, 1, ReflectionPad1d) \
  X(ReflectionPadImpl, 2, ReflectionPad2d) X(ReflectionPadImpl, 3, ReflectionPad3d) \
  X(ReplicationPadImpl, 1, ReplicationPad1d) X(ReplicationPadImpl, 2, ReplicationPad2d) \
  X(ReplicationPadImpl, 3, ReplicationPad3d) TORCHTAP_BUILTINS_ZERO_PAD(X)

// Types with a second method that does the work of forward. Neither method calls the other.
#define TORCHTAP_BUILTINS_PACKED(X) X(GRU) X(LSTM) X(RNN)
#define TORCHTAP_BUILTINS_INDICES(X) \
  X(AdaptiveMaxPool1d) X(AdaptiveMaxPool2d) X(AdaptiveMaxPool3d) X(FractionalMaxPool2d) \
  X(FractionalMaxPool3d) X(MaxPool1d) X(MaxPool2d) X(MaxPool3d)

// Types whose forward is defined only in a header.
#define TORCHTAP_BUILTINS_NORM(X) \
  X(BatchNormImplBase, 1, BatchNorm1d) X(BatchNormImplBase, 2, BatchNorm2d) \
  X(BatchNormImplBase, 3, BatchNorm3d) X(InstanceNormImpl, 1, InstanceNorm1d) \
  X(InstanceNormImpl, 2, InstanceNorm2d) X(InstanceNormImpl, 3, InstanceNorm3d)

// All types: `X(Name)`, and `Y(Template, D, Name)` for members of class templates.
#define TORCHTAP_BUILTINS(X, Y) \
  TORCHTAP_BUILTINS_1(X) TORCHTAP_BUILTINS_1_BY_VERSION(X) TORCHTAP_BUILTINS_2(X) TORCHTAP_BUILTINS_3(X) \
  TORCHTAP_BUILTINS_4(X) TORCHTAP_BUILTINS_6(X) TORCHTAP_BUILTINS_7(X) TORCHTAP_BUILTINS_8(X) TORCHTAP_BUILTINS_TEMPLATE(Y) \
  TORCHTAP_BUILTINS_NORM(Y)
// clang-format on
