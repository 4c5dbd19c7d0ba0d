// Programs call TorchScript through one function of LibTorch. The definition here precedes LibTorch's: it has
// the agent see the call, and calls the original.
#include <dlfcn.h>
#include <torch/csrc/jit/api/method.h>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/transparent/detail/intercept.hpp>

#include "agent.hpp"

namespace torch::jit {

c10::IValue Method::operator()(std::vector<c10::IValue> stack, const Kwargs& kwargs) const {
  using Member = c10::IValue (Method::*)(std::vector<c10::IValue>, const Kwargs&) const;
  static const auto original = [] {
    const void* code =
        dlsym(RTLD_NEXT,
              "_ZNK5torch3jit6MethodclESt6vectorIN3c106IValueESaIS4_EERKSt13unordered_mapINSt7__"
              "cxx1112basic_stringIcSt11char_traitsIcESaIcEEES4_St4hashISD_ESt8equal_toISD_ESaISt4"
              "pairIKSD_S4_EEE");
    TORCH_CHECK_NOT_IMPLEMENTED(code != nullptr,
                                "torchtap preload: LibTorch has no torch::jit::Method::operator().");
    return torchtap::transparent::detail::member_at<Member>(code);
  }();
  if (!torchtap::preload::waits_for_script()) return (this->*original)(std::move(stack), kwargs);
  const std::vector<c10::IValue> arguments = stack;
  return torchtap::preload::called_script(*this, arguments,
                                          [&] { return (this->*original)(std::move(stack), kwargs); });
}

}  // namespace torch::jit
