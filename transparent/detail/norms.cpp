// Batch and instance normalisation: LibTorch defines their forwards in headers, so there is nothing to
// interpose. A program that was compiled with overlay/ calls these.
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <torchtap/transparent/detail/intercept.hpp>
#include <torchtap/transparent/detail/types.hpp>

namespace torchtap::transparent::detail {

/// The template as it stands in the installed header, instantiated for a class of ours, because for
/// LibTorch's class its forward is replaced here. The two differ in nothing but the name of a template
/// argument, so one's forward runs on the other's object; norms.cpp is compiled without the assumption that
/// they do not alias.
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
