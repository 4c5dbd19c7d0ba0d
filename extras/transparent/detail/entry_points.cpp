// Definitions of the methods of LibTorch's modules, besides forward, that do the work of forward, as in
// interpose.cpp for forward. Python's modules do both in forward, so the same hooks run.
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>

#include <utility>

#include <torchtap/transparent/detail/intercept.hpp>
#include <torchtap/transparent/detail/types.hpp>

using torchtap::transparent::detail::Intercept;

#define PACKED(Name) Intercept<&Name##Impl::forward_with_packed_input>
#define DEFINE_PACKED(Name)                                                                      \
  PACKED(Name)::Result Name##Impl::forward_with_packed_input(PACKED(Name)::Parameter<0> packed,  \
                                                             PACKED(Name)::Parameter<1> state) { \
    return PACKED(Name)::call(*this, packed, std::forward<PACKED(Name)::Parameter<1>>(state));   \
  }
#define DEFINE_INDICES(Name)                                                         \
  std::tuple<Tensor, Tensor> Name##Impl::forward_with_indices(const Tensor& input) { \
    return Intercept<&Name##Impl::forward_with_indices>::call(*this, input);         \
  }

namespace torch::nn {

TORCHTAP_BUILTINS_PACKED(DEFINE_PACKED)
TORCHTAP_BUILTINS_INDICES(DEFINE_INDICES)

}  // namespace torch::nn

namespace torchtap::transparent::detail {

std::vector<Definition> entry_point_definitions() {
#define LIST(Name, method) {&typeid(torch::nn::Name##Impl), code_of(&torch::nn::Name##Impl::method), false},
#define LIST_PACKED(Name) LIST(Name, forward_with_packed_input)
#define LIST_INDICES(Name) LIST(Name, forward_with_indices)
  return {TORCHTAP_BUILTINS_PACKED(LIST_PACKED) TORCHTAP_BUILTINS_INDICES(LIST_INDICES)};
}

}  // namespace torchtap::transparent::detail
