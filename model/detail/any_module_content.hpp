#pragma once

#include <torch/nn/modules/container/any.h>

#include <torchtap/core/detail/expose.hpp>

namespace torchtap::core::detail {

struct AnyModuleContent {
  friend auto exposed(AnyModuleContent);
};
template struct Expose<AnyModuleContent, &torch::nn::AnyModule::content_>;

}  // namespace torchtap::core::detail

namespace torchtap::model::detail {

/// The holder inside; null if the `AnyModule` is empty.
inline torch::nn::AnyModulePlaceholder* holder_of(torch::nn::AnyModule& any) {
  return (any.*exposed(core::detail::AnyModuleContent{})).get();
}

}  // namespace torchtap::model::detail
