#include <torch/torch.h>

#include <torchtap/operations/operations.hpp>

int main() {
  int relus = 0;
  const auto count = [&](torchtap::operations::Event& event) {
    if (event.name() == "aten::relu") ++relus;
  };
  const auto x = torch::randn({4});
  {
    const torchtap::operations::Scope scope(count);
    torch::relu(torch::relu(x));
  }
  torch::relu(x);
  return relus == 2 ? 0 : 1;
}
