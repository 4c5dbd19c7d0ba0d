// What does not compile with torchtap::transparent, as as<Holder>() leads to a view; with
// TORCHTAP_EXACT_TYPES it does (tests/transparent_programs/exact.cpp).
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>

struct AImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x; }
};
TORCH_MODULE(A);
struct BImpl : AImpl {};

void wrong(torch::nn::Module& module) {
  // says: return type
  auto find = [](torch::nn::Module& one) {
    if (auto* a = one.as<A>()) return a;
    return static_cast<AImpl*>(nullptr);
  };
  find(module);
  // says: static_cast
  static_cast<void>(static_cast<BImpl*>(module.as<A>()));
  // says: deleted
  auto copy = *module.as<A>();
}
