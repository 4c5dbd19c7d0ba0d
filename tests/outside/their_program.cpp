// A program that knows nothing of torchtap, which the pages call theirs: trains a small network.
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 4, 3)};
  torch::nn::Linear layer1{4, 8}, fc{8, 3};
  NetImpl() {
    register_module("conv1", conv1);
    register_module("layer1", layer1);
    register_module("fc", fc);
  }
  at::Tensor forward(const at::Tensor& images) {
    return fc(layer1(conv1(images).relu().mean({2, 3})).relu());
  }
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(0);
  Net net;
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    net(torch::randn({8, 1, 12, 12})).square().mean().backward();
    optimizer.step();
  }
}
