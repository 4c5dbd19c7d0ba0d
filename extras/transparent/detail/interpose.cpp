// Definitions of the forwards of LibTorch's modules. The dynamic linker prefers them to LibTorch's own, for
// every caller including LibTorch; the originals are next in its order.
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>

#include <torchtap/transparent/detail/intercept.hpp>
#include <torchtap/transparent/detail/types.hpp>

using torchtap::transparent::detail::Intercept;

// The signature comes from the header, because LibTorch's versions differ.
#define PARAMETER(Name, i) Intercept<&Name##Impl::forward>::Parameter<i> a##i
#define PASS(Name, i) std::forward<Intercept<&Name##Impl::forward>::Parameter<i>>(a##i)
#define PARAMETERS_1(Name) PARAMETER(Name, 0)
#define PARAMETERS_2(Name) PARAMETERS_1(Name), PARAMETER(Name, 1)
#define PARAMETERS_3(Name) PARAMETERS_2(Name), PARAMETER(Name, 2)
#define PARAMETERS_4(Name) PARAMETERS_3(Name), PARAMETER(Name, 3)
#define PARAMETERS_6(Name) PARAMETERS_4(Name), PARAMETER(Name, 4), PARAMETER(Name, 5)
#define PARAMETERS_7(Name) PARAMETERS_6(Name), PARAMETER(Name, 6)
#define PARAMETERS_8(Name) PARAMETERS_7(Name), PARAMETER(Name, 7)
#define PASS_1(Name) PASS(Name, 0)
#define PASS_2(Name) PASS_1(Name), PASS(Name, 1)
#define PASS_3(Name) PASS_2(Name), PASS(Name, 2)
#define PASS_4(Name) PASS_3(Name), PASS(Name, 3)
#define PASS_6(Name) PASS_4(Name), PASS(Name, 4), PASS(Name, 5)
#define PASS_7(Name) PASS_6(Name), PASS(Name, 6)
#define PASS_8(Name) PASS_7(Name), PASS(Name, 7)

#define DEFINE(Name, n)                                                               \
  Intercept<&Name##Impl::forward>::Result Name##Impl::forward(PARAMETERS_##n(Name)) { \
    return Intercept<&Name##Impl::forward>::call(*this, PASS_##n(Name));              \
  }
#define DEFINE_1(Name) DEFINE(Name, 1)
#define DEFINE_2(Name) DEFINE(Name, 2)
#define DEFINE_3(Name) DEFINE(Name, 3)
#define DEFINE_4(Name) DEFINE(Name, 4)
#define DEFINE_6(Name) DEFINE(Name, 6)
#define DEFINE_7(Name) DEFINE(Name, 7)
#define DEFINE_8(Name) DEFINE(Name, 8)
#define DEFINE_TEMPLATE(Template, D, Name)                                   \
  template <>                                                                \
  Tensor Template<D, Name##Impl>::forward(const Tensor& input) {             \
    return Intercept<&Template<D, Name##Impl>::forward>::call(*this, input); \
  }

namespace torch::nn {

TORCHTAP_BUILTINS_1(DEFINE_1)
TORCHTAP_BUILTINS_1_BY_VERSION(DEFINE_1)
TORCHTAP_BUILTINS_2(DEFINE_2)
TORCHTAP_BUILTINS_3(DEFINE_3)
TORCHTAP_BUILTINS_4(DEFINE_4)
TORCHTAP_BUILTINS_6(DEFINE_6)
TORCHTAP_BUILTINS_7(DEFINE_7)
TORCHTAP_BUILTINS_8(DEFINE_8)
TORCHTAP_BUILTINS_TEMPLATE(DEFINE_TEMPLATE)

}  // namespace torch::nn

namespace torchtap::transparent::detail {

std::vector<Definition> symbol_definitions() {
#define LIST(Name) {&typeid(torch::nn::Name##Impl), code_of(&torch::nn::Name##Impl::forward), false},
#define LIST_TEMPLATE(Template, D, Name) LIST(Name)
  return {TORCHTAP_BUILTINS_1(LIST) TORCHTAP_BUILTINS_1_BY_VERSION(LIST) TORCHTAP_BUILTINS_2(LIST)
              TORCHTAP_BUILTINS_3(LIST) TORCHTAP_BUILTINS_4(LIST) TORCHTAP_BUILTINS_6(LIST)
                  TORCHTAP_BUILTINS_7(LIST) TORCHTAP_BUILTINS_8(LIST)
                      TORCHTAP_BUILTINS_TEMPLATE(LIST_TEMPLATE)};
}

}  // namespace torchtap::transparent::detail
