struct Helper {
  int n = 3;
};
struct CacheImpl : torch::nn::Module {
  std::vector<std::unique_ptr<Helper>> helpers;
  CacheImpl() { helpers.push_back(std::make_unique<Helper>()); }
  T forward(T x) { return x + helpers[0]->n; }
};
TORCH_MODULE(Cache);
void run() {
  Cache c;
  std::cout << c->forward(torch::ones({1})) << "\n";
}
