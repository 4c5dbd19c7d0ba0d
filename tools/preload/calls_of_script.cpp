// Programs, and Python, run TorchScript through one virtual function of LibTorch. The definition here
// precedes LibTorch's: it has the agent see the call, and calls the original.
#include <dlfcn.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <torchtap/base/error.hpp>

#include "agent.hpp"

#define TORCHTAP_RUN "_ZN5torch3jit13GraphFunction3runERSt6vectorIN3c106IValueESaIS4_EE"

namespace torchtap::tools::preload {
namespace {

using Run = void (*)(torch::jit::GraphFunction*, torch::jit::Stack&);

}  // namespace

// GraphFunction::run, under its symbol: defined as a member, it would bring a second copy of the class's
// table of virtual functions with it. In the Itanium C++ ABI `this` is the first argument.
[[gnu::visibility("default")]] void run_function(torch::jit::GraphFunction* function,
                                                 torch::jit::Stack& stack) __asm__(TORCHTAP_RUN);

void run_function(torch::jit::GraphFunction* function, torch::jit::Stack& stack) {
  static const auto original = [] {
    void* code = dlsym(RTLD_NEXT, TORCHTAP_RUN);
    TORCH_CHECK_NOT_IMPLEMENTED(code != nullptr,
                                "torchtap preload: LibTorch has no torch::jit::GraphFunction::run.");
    return reinterpret_cast<Run>(code);
  }();
  if (!waits_for_script()) return original(function, stack);
  called_script(*function, stack, [&] { original(function, stack); });
}

}  // namespace torchtap::tools::preload
