struct RefQImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) & { return x + 1; }
};
TORCH_MODULE(RefQ);
void run() {
  std::cout << RefQ()->forward(torch::ones({1})) << "\n";
}
