void run() {
  struct LocImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) { return x + 1; }
  };
  TORCH_MODULE(Loc);
  Loc l;
  std::cout << l->forward(torch::ones({1})) << "\n";
}
