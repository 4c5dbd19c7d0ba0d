// Code that depends on the exact type of what as<Holder>() returns. Without torchtap::transparent, and with
// it and TORCHTAP_EXACT_TYPES, this program prints the same. With views it prints what
// extras/transparent/README.md says, and the parts after `#ifndef VIEWS` do not compile.
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <iostream>
#include <map>
#include <memory>
#include <type_traits>
#include <typeinfo>

using T = torch::Tensor;
namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  T w = torch::ones({1});
  int k = 1;
  T forward(T x) { return x + w; }
};
TORCH_MODULE(Block);
struct AImpl : nn::Module {
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(A);
struct BImpl : AImpl {
  int k = 5;
};
TORCH_MODULE(B);

template <class M>
void init(M& /*module*/) {
  std::cout << "init: any\n";
}
void init(BlockImpl& block) {
  block.w.fill_(7);
  std::cout << "init: Block\n";
}
template <class M>
struct Kind {
  static constexpr const char* name = "any";
};
template <>
struct Kind<BlockImpl> {
  static constexpr const char* name = "Block";
};
template <class M>
void tell(const M& /*module*/) {
  std::cout << "kind: " << Kind<M>::name << "\n";
}

int main() {
  const T x = torch::ones({2, 3});
  nn::ModuleList list(Block{}, Block{});
  for (auto& module : *list) {
    if (auto* block = module->as<Block>()) init(*block);
  }
  for (auto& module : *list) std::cout << module->as<Block>()->forward(x).sum().item<double>() << "\n";
  tell(*(*list)[0]->as<Block>());
  std::cout << "same: " << std::is_same_v<decltype((*list)[0]->as<Block>()), BlockImpl*> << "\n";
  std::map<BlockImpl*, int> order{{(*list)[0]->as<Block>(), 1}};
  std::cout << order.count((*list)[0]->as<BlockImpl>()) << "\n";
#ifndef VIEWS
  auto find = [](nn::Module& module) {
    if (auto* block = module.as<Block>()) return block;
    return static_cast<BlockImpl*>(nullptr);
  };
  std::cout << (find(*(*list)[1]) == (*list)[1].get()) << "\n";
  B b;
  std::cout << static_cast<BImpl*>(b->as<A>())->k << "\n";
  auto copy = *(*list)[0]->as<Block>();
  std::cout << copy.name() << (typeid(copy) == typeid(BlockImpl)) << copy.forward(x).sum().item<double>()
            << "\n";
  const auto made = std::make_shared<std::decay_t<decltype(*(*list)[0]->as<Block>())>>();
  nn::Sequential entries;
  entries->push_back(made);
  std::cout << made->name() << entries->forward(x).sum().item<double>() << "\n";
#endif
}
