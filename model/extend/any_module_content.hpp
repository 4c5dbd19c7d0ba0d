#pragma once

/// Gets the holder inside a `torch::nn::AnyModule`, which LibTorch keeps private.

#include <torch/nn/modules/container/any.h>

#include <torchtap/base/expose.hpp>

namespace torchtap::base {

struct AnyModuleContent {
  friend auto exposed(AnyModuleContent);
};
template struct Expose<AnyModuleContent, &torch::nn::AnyModule::content_>;

}  // namespace torchtap::base

namespace torchtap::model::extend {

/// The holder inside `any`; null if it is empty.
inline torch::nn::AnyModulePlaceholder* holder_of(torch::nn::AnyModule& any) {
  return (any.*exposed(base::AnyModuleContent{})).get();
}

}  // namespace torchtap::model::extend
