struct AttnImpl : torch::nn::Module {
  virtual T forward(T x, double scale = 2) { return x * scale; }
};
TORCH_MODULE(Attn);
struct FastAttnImpl : AttnImpl {
  T forward(T x, double scale = 2) override { return x * scale + 100; }
};
TORCH_MODULE(FastAttn);
void run() {
  std::shared_ptr<AttnImpl> p = std::make_shared<FastAttnImpl>();
  Attn layer(p);  // base holder, derived object
  std::cout << layer->forward(torch::ones({1})).item<float>() << " " << layer(torch::ones({1})).item<float>()
            << " " << layer->forward(torch::ones({1}), 2).item<float>() << "\n";
  torch::nn::ModuleList list(p);
  std::cout << (*list)[0]->as<Attn>()->forward(torch::ones({1})).item<float>() << "\n";
}
