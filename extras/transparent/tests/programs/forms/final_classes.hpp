class FooImpl final : public torch::nn::Module {
 public:
  FooImpl() { l = register_module("l", torch::nn::Linear(2, 2)); }
  torch::Tensor forward(torch::Tensor x) { return l(x); }
  torch::nn::Linear l{nullptr};
};
TORCH_MODULE(Foo);
void run() {
  torch::manual_seed(0);
  Foo f;
  std::cout << f->forward(torch::ones({1, 2})) << "\n" << f->name() << "\n" << f << "\n";
}
