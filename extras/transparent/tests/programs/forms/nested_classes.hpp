struct Outer {
  struct InImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) { return x + 1; }
  };
  TORCH_MODULE(In);
  In in;
  torch::Tensor run() { return in->forward(torch::ones({1})); }
};
class HidImpl : public torch::nn::Module {
  torch::Tensor secret(torch::Tensor x) { return x + 2; }
  friend class Hid;

 public:
  torch::Tensor forward(torch::Tensor x) { return secret(x); }
};
TORCH_MODULE(Hid);
void run() {
  Outer o;
  std::cout << o.run() << Hid()->forward(torch::ones({1})) << "\n";
}
