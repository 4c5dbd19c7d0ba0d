// constructors that are not public, as in singletons and factories
class FacImpl : public torch::nn::Module {
 public:
  static std::shared_ptr<FacImpl> create() { return std::shared_ptr<FacImpl>(new FacImpl()); }
  T forward(T x) { return x + 1; }

 private:
  FacImpl() = default;
};
TORCH_MODULE(Fac);
class ProtImpl : public torch::nn::Module {
 public:
  T forward(T x) { return x + 1; }
  virtual T hook(T) = 0;
};
TORCH_MODULE(Prot);
class ProtDImpl : public ProtImpl {
 public:
  T hook(T x) override { return x; }
};
TORCH_MODULE(ProtD);
struct NoMoveImpl : torch::nn::Module {
  NoMoveImpl() = default;
  NoMoveImpl(const NoMoveImpl&) = delete;
  NoMoveImpl& operator=(const NoMoveImpl&) = delete;
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(NoMove);
struct ExplCopyImpl : torch::nn::Module {
  explicit ExplCopyImpl(int) {}
  explicit ExplCopyImpl(const ExplCopyImpl& o) : torch::nn::Module(o) {}
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(ExplCopy);
struct FwdMemImpl : torch::nn::Module {
  T seen_forward(T x) { return x; }
  int torch_ = 0;
  T forward(T x, const c10::optional<T>& m = {}, std::vector<int64_t> dims = {1, 2}, bool flag = false) {
    return x + int64_t(dims.size()) + flag;
  }
};
TORCH_MODULE(FwdMem);
struct ShortImpl : torch::nn::Module {
  template <class A>
  int Short(A) {
    return 1;
  }
  using TorchtapX = int;
  int entry = 3, gate = 4;
  T forward(T x) { return x + entry + gate; }
};
TORCH_MODULE(Short);
struct DtorImpl : torch::nn::Module {
  ~DtorImpl() override { std::cout << "~Dtor\n"; }
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(Dtor);
struct OpNewImpl : torch::nn::Module {
  static void* operator new(size_t n) {
    std::cout << "new\n";
    return ::operator new(n);
  }
  static void operator delete(void* p) {
    std::cout << "delete\n";
    ::operator delete(p);
  }
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(OpNew);
struct SelfImpl : torch::nn::Module {
  T forward(T x) { return std::dynamic_pointer_cast<SelfImpl>(shared_from_this())->n + x; }
  int n = 3;
};
TORCH_MODULE(Self);
struct VirtDefImpl : torch::nn::Module {
  virtual T forward(T x, int k = 2) { return x * k; }
};
TORCH_MODULE(VirtDef);
struct VirtDef2Impl : VirtDefImpl {
  T forward(T x, int k = 5) override { return x * k * 10; }
};
TORCH_MODULE(VirtDef2);
void run() {
  T x = torch::ones({1});
  std::cout << Fac(FacImpl::create())->forward(x) << ProtD()->forward(x) << NoMove()->forward(x)
            << ExplCopy(3)->forward(x) << FwdMem()->forward(x) << FwdMem()->forward(x, x)
            << FwdMem()->forward(x, x, {1}) << FwdMem()->forward(x, {}, {1, 2, 3}, true)
            << FwdMem()->forward(x, c10::nullopt) << Short()->forward(x) << "\n";
  {
    Dtor d;
    d->forward(x);
  }
  {
    OpNew o;
    o->forward(x);
  }
  std::cout << Self()->forward(x) << VirtDef()->forward(x) << VirtDef2()->forward(x) << "\n";
  std::shared_ptr<VirtDefImpl> p = VirtDef2().ptr();
  std::cout << p->forward(x) << "\n";
  VirtDef h(p);
  std::cout << h->forward(x) << h->forward(x, 1) << "\n";
}
