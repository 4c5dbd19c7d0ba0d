// Batch and instance normalisation. LibTorch defines their forwards in headers, so there is no symbol to
// interpose; a program compiled with overlay/ calls these definitions.
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <torchtap/transparent/detail/intercept.hpp>
#include <torchtap/transparent/detail/types.hpp>

namespace torchtap::transparent::detail {

/// LibTorch's template from the installed header, instantiated for a class of ours, because this file
/// replaces its forward for LibTorch's class. The two differ only in the name of a template argument, so the
/// forward of one runs on an object of the other; norms.cpp is compiled without the assumption that they do
/// not alias.
template <template <std::size_t, class> class Base, std::size_t D>
struct Unreplaced : Base<D, Unreplaced<Base, D>> {};

template <template <std::size_t, class> class Base, std::size_t D, class Impl>
at::Tensor call_norm(Base<D, Impl>& self, const at::Tensor& input) {
  using Twin = Base<D, Unreplaced<Base, D>>;
  static_assert(sizeof(Twin) == sizeof(Base<D, Impl>));
  return run<at::Tensor>(
      self, [&](const at::Tensor& given) { return reinterpret_cast<Twin&>(self).forward(given); }, input);
}

}  // namespace torchtap::transparent::detail

#define DEFINE_NORM(Template, D, Name)                                          \
  template <>                                                                   \
  Tensor Template<D, Name##Impl>::forward(const Tensor& input) {                \
    return torchtap::transparent::detail::call_norm<Template, D>(*this, input); \
  }

namespace torch::nn {
TORCHTAP_BUILTINS_NORM(DEFINE_NORM)
}

namespace torchtap::transparent::detail {

std::vector<Definition> norm_definitions() {
#define LIST_NORM(Template, D, Name) \
  {&typeid(torch::nn::Name##Impl), code_of(&torch::nn::Template<D, torch::nn::Name##Impl>::forward), true},
  return {TORCHTAP_BUILTINS_NORM(LIST_NORM)};
}

}  // namespace torchtap::transparent::detail
