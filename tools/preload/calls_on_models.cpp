// Modules have no link to the model around them. So these definitions interpose LibTorch's functions that
// programs call on whole models: they note the module and call the original.
#include <dlfcn.h>
#include <torch/nn/module.h>

#include <torchtap/base/error.hpp>
#include <torchtap/transparent/extend/member_code.hpp>

#include "agent.hpp"

namespace torchtap::tools::preload {
namespace {

/// Notes only the outermost call: LibTorch visits the children through the same functions.
class Outermost {
 public:
  explicit Outermost(const torch::nn::Module& module) {
    if (depth()++ == 0) found_root(module);
  }
  ~Outermost() { --depth(); }
  Outermost(const Outermost&) = delete;
  Outermost& operator=(const Outermost&) = delete;

 private:
  static int& depth() {
    static thread_local int depth = 0;
    return depth;
  }
};

template <class Member>
Member next(const char* symbol) {
  const void* code = dlsym(RTLD_NEXT, symbol);
  TORCH_CHECK_NOT_IMPLEMENTED(code != nullptr, "torchtap preload: LibTorch has no ", symbol, ".");
  return transparent::extend::member_at<Member>(code);
}

}  // namespace
}  // namespace torchtap::tools::preload

using torchtap::tools::preload::Outermost;

namespace torch::nn {

std::vector<Tensor> Module::parameters(bool recurse) const {
  using Member = std::vector<Tensor> (Module::*)(bool) const;
  static const auto original = torchtap::tools::preload::next<Member>("_ZNK5torch2nn6Module10parametersEb");
  const Outermost outermost(*this);
  return (this->*original)(recurse);
}

OrderedDict<std::string, Tensor> Module::named_parameters(bool recurse) const {
  using Member = OrderedDict<std::string, Tensor> (Module::*)(bool) const;
  static const auto original =
      torchtap::tools::preload::next<Member>("_ZNK5torch2nn6Module16named_parametersB5cxx11Eb");
  const Outermost outermost(*this);
  return (this->*original)(recurse);
}

std::vector<std::shared_ptr<Module>> Module::modules(bool include_self) const {
  using Member = std::vector<std::shared_ptr<Module>> (Module::*)(bool) const;
  static const auto original = torchtap::tools::preload::next<Member>("_ZNK5torch2nn6Module7modulesEb");
  const Outermost outermost(*this);
  return (this->*original)(include_self);
}

OrderedDict<std::string, std::shared_ptr<Module>> Module::named_modules(const std::string& name_prefix,
                                                                        bool include_self) const {
  using Member =
      OrderedDict<std::string, std::shared_ptr<Module>> (Module::*)(const std::string&, bool) const;
  static const auto original = torchtap::tools::preload::next<Member>(
      "_ZNK5torch2nn6Module13named_modulesERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEb");
  const Outermost outermost(*this);
  return (this->*original)(name_prefix, include_self);
}

void Module::train(bool on) {
  using Member = void (Module::*)(bool);
  static const auto original = torchtap::tools::preload::next<Member>("_ZN5torch2nn6Module5trainEb");
  const Outermost outermost(*this);
  (this->*original)(on);
}

}  // namespace torch::nn
