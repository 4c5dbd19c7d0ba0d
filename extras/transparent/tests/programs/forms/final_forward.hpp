struct BackboneImpl : torch::nn::Module {
  virtual T forward(T x) = 0;
};
struct MyNetImpl : BackboneImpl {
  T forward(T x) final { return x + 1; }
};
TORCH_MODULE(MyNet);
void run() {
  MyNet n;
  std::cout << n->forward(torch::ones({1})) << "\n";
}
