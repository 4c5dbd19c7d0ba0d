struct CImpl : torch::nn::Module {
  T forward(const T& x) const { return x * 3; }
};
TORCH_MODULE(C);
struct NetImpl : torch::nn::Module {
  C c;
  T forward(T x) const { return c->forward(x); }
};  // const forward that calls a const submodule
TORCH_MODULE(Net);
void run() {
  const C c;
  Net n;
  std::cout << c->forward(torch::ones({1})) << n->forward(torch::ones({1})) << "\n";
}
