struct Helper {
  int n = 3;
};
struct CImpl : torch::nn::Module {
  std::map<int, std::unique_ptr<Helper>> h;
  std::mutex m;
  std::unique_ptr<Helper> u;
  T forward(T x) {
    std::lock_guard<std::mutex> l(m);
    return x + 1;
  }
};
TORCH_MODULE(C);
struct DImpl : torch::nn::Module {
  std::map<int, std::unique_ptr<Helper>> h;
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(D);
void run() {
  C c;
  D d;
  std::cout << c->forward(torch::ones({1})) << d->forward(torch::ones({1})) << "\n";
}
