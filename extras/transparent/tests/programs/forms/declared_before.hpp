struct NodeImpl;
TORCH_MODULE(Node);
struct NodeImpl : torch::nn::Module {
  explicit NodeImpl(int depth) {
    l = register_module("l", torch::nn::Linear(2, 2));
    if (depth) child = register_module("child", Node(depth - 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = l(x);
    return child ? child->forward(x) : x;
  }
  torch::nn::Linear l{nullptr};
  Node child{nullptr};
};
void run() {
  torch::manual_seed(0);
  Node f(3);
  std::cout << f->forward(torch::ones({1, 2})) << "\n" << f << "\n";
}
