struct CRetImpl : torch::nn::Module {
  const T forward(T x) { return x + 1; }
};
TORCH_MODULE(CRet);
struct MyLinImpl : torch::nn::LinearImpl {
  using LinearImpl::LinearImpl;
  T forward(const T& x) { return LinearImpl::forward(x) * 2; }
};
TORCH_MODULE(MyLin);
struct MyLin2Impl : torch::nn::LinearImpl {
  using LinearImpl::LinearImpl;
};
TORCH_MODULE(MyLin2);
struct VirtModImpl : virtual torch::nn::Module {
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(VirtMod);
struct alignas(64) AlignImpl : torch::nn::Module {
  alignas(64) float buf[16] = {1};
  T forward(T x) { return x + buf[0]; }
};
TORCH_MODULE(Align);
struct WrapImpl : torch::nn::Module {
  std::shared_ptr<WrapImpl> inner;
  WrapImpl(int) {}
  WrapImpl(std::shared_ptr<WrapImpl> in, int) : inner(in) {}
  T forward(T x) { return inner ? inner->forward(x) * 2 : x + 1; }
};
TORCH_MODULE(Wrap);
class FriendImpl : public torch::nn::Module {
  friend class Friend;

 public:
  FriendImpl() = default;
  T forward(T x) { return x + k; }

 private:
  int k = 4;
};
class Friend : public torch::nn::ModuleHolder<FriendImpl> {
 public:
  using torch::nn::ModuleHolder<FriendImpl>::ModuleHolder;
  int k() const { return impl_->k; }
};
struct BlkImpl : torch::nn::Cloneable<BlkImpl> {
  BlkImpl(int n = 2) : n(n) { reset(); }
  void reset() override { l = register_module("l", torch::nn::Linear(n, n)); }
  T forward(T x) { return l(x); }
  int n;
  torch::nn::Linear l{nullptr};
};
TORCH_MODULE(Blk);
template <class M>
struct Is {
  static constexpr bool value = std::is_same_v<M, BlkImpl>;
};
template <class M>
bool is_blk(const M&) {
  return Is<M>::value;
}
template <class M>
struct Trainer {
  M model;
  T step(T x) { return model->forward(x); }
};
template <class ModelImpl>
struct Runner {
  std::shared_ptr<ModelImpl> m;
  T run(T x) { return m->forward(x); }
};
struct ParentImpl : torch::nn::Module {
  ParentImpl() {
    b = register_module("b", Blk(2));
    list = register_module("list", torch::nn::ModuleList(Blk(2), Blk(2)));
    dict = register_module("dict", torch::nn::ModuleDict());
    dict->update({{"x", Blk(2).ptr()}});
  }
  T forward(T x) {
    x = b(x);
    for (auto& m : *list) x = m->as<Blk>()->forward(x);
    x = list->at<BlkImpl>(0).forward(x);
    return dict["x"]->as<BlkImpl>()->forward(x);
  }
  Blk b{nullptr};
  torch::nn::ModuleList list{nullptr};
  torch::nn::ModuleDict dict{nullptr};
};
TORCH_MODULE(Parent);
void run() {
  torch::manual_seed(0);
  T x = torch::ones({1, 2});
  std::cout << CRet()->forward(x) << MyLin(2, 2)->forward(x) << MyLin2(2, 2)->forward(x)
            << VirtMod()->forward(x) << Align()->forward(x) << "\n";
  Wrap w(1);
  Wrap w2(w.ptr(), 3);
  Wrap w3(w2.ptr());
  std::cout << w2->forward(x) << (w3.ptr() == w2.ptr()) << "\n";
  Friend f;
  std::cout << f->forward(x) << f.k() << "\n";
  Blk b(2);
  std::stringstream s;
  torch::save(b, s);
  Blk c(2);
  torch::load(c, s);
  std::cout << torch::equal(c(x), b(x)) << "\n";
  std::cout << "exact type: " << is_blk(*b) << " typeid " << (typeid(*b) == typeid(BlkImpl)) << " dyn "
            << (dynamic_cast<BlkImpl*>(static_cast<torch::nn::Module*>(b.get())) != nullptr) << "\n";
  Trainer<Blk> t{Blk(2)};
  std::cout << t.step(x).sizes() << Runner<BlkImpl>{b.ptr()}.run(x).sizes()
            << Runner<Blk::ContainedType>{b.ptr()}.run(x).sizes() << "\n";
  Parent p;
  std::cout << p->forward(x) << "\n" << p << "\n";
  int blk = 0;
  for (auto& m : p->modules()) {
    blk += typeid(*m) == typeid(BlkImpl);
  }
  std::cout << "by typeid: " << blk << "\n";
  int nm = 0;
  for (auto& m : p->modules()) nm += m->name() == "BlkImpl";
  std::cout << "by name: " << nm << "\n";
  Blk moved = std::move(b);
  std::cout << b.is_empty() << moved.is_empty() << "\n";
  try {
    b->forward(x);
  } catch (const c10::Error&) {
    std::cout << "empty holder throws\n";
  }
  std::cout << sizeof(BlkImpl) << "\n";
  std::swap(moved, c);
  Blk d = c;
  d = moved;
  std::cout << (d.ptr() == moved.ptr()) << "\n";
  if (d) std::cout << "bool\n";
  auto fn = [](torch::nn::ModuleHolder<BlkImpl> h) { return h->n; };
  std::cout << fn(d) << "\n";
  auto fp = [](std::shared_ptr<torch::nn::Module> h) { return h->parameters().size(); };
  std::cout << fp(d.ptr()) << "\n";
  BlkImpl* raw = d.get();
  BlkImpl& ref = *d;
  std::cout << (raw == &ref) << "\n";
  std::shared_ptr<BlkImpl> sp = d.ptr();
  std::weak_ptr<BlkImpl> wp = sp;
  std::cout << wp.lock()->n << "\n";
  BlkImpl copy = *d;
  std::cout << copy.n << "\n";
  Blk e(copy);
  std::cout << e->n << "\n";
  torch::nn::Sequential seq(Blk(2), Blk(2));
  std::cout << seq->at<BlkImpl>(0).n << seq->ptr<BlkImpl>(1)->n << "\n";
  auto cl = std::dynamic_pointer_cast<ParentImpl>(p.ptr());
  std::cout << bool(cl) << "\n";
}
