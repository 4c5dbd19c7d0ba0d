struct BaseImpl : torch::nn::Module {
  virtual torch::Tensor forward(torch::Tensor x) = 0;
};
TORCH_MODULE(Base);
struct AImpl : BaseImpl {
  torch::Tensor forward(torch::Tensor x) override { return x + 1; }
};
TORCH_MODULE(A);
struct BImpl : AImpl {
  torch::Tensor forward(torch::Tensor x) override { return AImpl::forward(x) * 10; }
};
TORCH_MODULE(B);
void run() {
  A a;
  B b;
  auto x = torch::ones({1});
  Base p(std::shared_ptr<BaseImpl>(a.ptr()));
  Base q(std::shared_ptr<BaseImpl>(std::make_shared<BImpl>()));
  A r(std::shared_ptr<AImpl>(b.ptr()));
  std::shared_ptr<BaseImpl> s = b.ptr();
  std::cout << a->forward(x) << b->forward(x) << p->forward(x) << q->forward(x) << r->forward(x)
            << s->forward(x) << b(x) << q(x) << "\n";
  torch::nn::Sequential seq(a, b, r);
  std::cout << seq->forward(x) << "\n" << seq << "\n";
  A up(std::shared_ptr<AImpl>(b.ptr()));
  A a2{std::static_pointer_cast<AImpl>(q.ptr())};
  std::cout << up->forward(x) << a2->forward(x) << "\n";
}
