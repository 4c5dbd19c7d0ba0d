// Two plug-ins have different classes of one name: each is judged by its own, in either order. This file is
// the program, which opens the plug-ins that it is given, and, with VERSION, a plug-in.
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#ifdef VERSION
struct BlockImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + VERSION; }
#if VERSION == 2
  at::Tensor forward(const at::Tensor& x, int factor) {
    return x * factor;
  }
#endif
};
TORCH_MODULE(Block);

extern "C" void make(std::shared_ptr<torch::nn::Module>& module) {
  module = Block().ptr();
}
extern "C" void call(const std::shared_ptr<torch::nn::Module>& module) {
  Block(std::dynamic_pointer_cast<BlockImpl>(module))->forward(at::zeros({1}));
}
#else
#include <dlfcn.h>

#include <iostream>

#include <torchtap/hooks/hooks.hpp>

int main(int count, char** plugins) {
  for (int i = 1; i < count; ++i) {
    void* plugin = dlopen(plugins[i], RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) throw std::runtime_error(dlerror());
    std::shared_ptr<torch::nn::Module> module;
    reinterpret_cast<void (*)(std::shared_ptr<torch::nn::Module>&)>(dlsym(plugin, "make"))(module);
    int calls = 0;
    try {
      const auto handle = torchtap::hooks::attach(*module, torchtap::hooks::Kind::forward_output,
                                                  [&calls](torchtap::hooks::Event&) { ++calls; });
      reinterpret_cast<void (*)(const std::shared_ptr<torch::nn::Module>&)>(dlsym(plugin, "call"))(module);
      std::cout << calls << '\n';
    } catch (const c10::ValueError& error) {
      const std::string text = error.what();
      std::cout << (text.find("is overloaded, a template") != std::string::npos ? "overloaded" : text)
                << '\n';
    }
  }
}
#endif
