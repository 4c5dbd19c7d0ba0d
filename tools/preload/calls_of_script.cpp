// Programs, and Python, run TorchScript through one virtual function of LibTorch, and the lite interpreter's
// files through another. The definitions here precede LibTorch's: they have the agent see the call, and call
// the original.
#include <dlfcn.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <torchtap/base/error.hpp>

#include "agent.hpp"

#define TORCHTAP_RUN "_ZN5torch3jit13GraphFunction3runERSt6vectorIN3c106IValueESaIS4_EE"
#define TORCHTAP_RUN_MOBILE "_ZN5torch3jit6mobile8Function3runERSt6vectorIN3c106IValueESaIS5_EE"

namespace torchtap::tools::preload {
namespace {

using Run = void (*)(torch::jit::GraphFunction*, torch::jit::Stack&);
using RunMobile = void (*)(void*, torch::jit::Stack&);

template <class Function>
Function original_of(const char* symbol, const char* name) {
  void* const code = dlsym(RTLD_NEXT, symbol);
  TORCH_CHECK_NOT_IMPLEMENTED(code != nullptr, "torchtap preload: LibTorch has no ", name, ".");
  return reinterpret_cast<Function>(code);
}

}  // namespace

// GraphFunction::run, under its symbol: defined as a member, it would bring a second copy of the class's
// table of virtual functions with it. In the Itanium C++ ABI `this` is the first argument.
[[gnu::visibility("default")]] void run_function(torch::jit::GraphFunction* function,
                                                 torch::jit::Stack& stack) __asm__(TORCHTAP_RUN);

void run_function(torch::jit::GraphFunction* function, torch::jit::Stack& stack) {
  static const auto original = original_of<Run>(TORCHTAP_RUN, "torch::jit::GraphFunction::run");
  if (!waits_for_script()) return original(function, stack);
  called_script(*function, stack, [&] { original(function, stack); });
}

[[gnu::visibility("default")]] void run_mobile(void* function,
                                               torch::jit::Stack& stack) __asm__(TORCHTAP_RUN_MOBILE);

void run_mobile(void* function, torch::jit::Stack& stack) {
  static const auto original =
      original_of<RunMobile>(TORCHTAP_RUN_MOBILE, "torch::jit::mobile::Function::run");
  called_mobile();
  original(function, stack);
}

}  // namespace torchtap::tools::preload
