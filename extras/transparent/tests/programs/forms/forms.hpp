namespace {
namespace inner {
struct OverImpl : torch::nn::Module {
  T forward(T x) { return x + 1; }
  T forward(T x, T y) { return x + y; }
};
TORCH_MODULE(Over);
struct TmplImpl : torch::nn::Module {
  template <class U>
  T forward(T x, U u) {
    return x * u;
  }
};
TORCH_MODULE(Tmpl);
struct ConstImpl : torch::nn::Module {
  T forward(const T& x) const { return x * 3; }
};
TORCH_MODULE(Const);
struct BothImpl : torch::nn::Module {
  T forward(const T& x) const { return x * 3; }
  T forward(const T& x) { return x * 4; }
};
TORCH_MODULE(Both);
struct DefaultsImpl : torch::nn::Module {
  T forward(T x, double a = 2, const std::string& s = "abc", bool b = true) {
    return x * a + double(s.size()) + b;
  }
};
TORCH_MODULE(Defaults);
struct VoidImpl : torch::nn::Module {
  void forward(T& x) { x = x + 5; }
};
TORCH_MODULE(Void);
struct RefImpl : torch::nn::Module {
  T state = torch::zeros({1});
  T& forward(const T& x) {
    state = state + x;
    return state;
  }
};
TORCH_MODULE(Ref);
struct MoveImpl : torch::nn::Module {
  std::unique_ptr<int> forward(std::unique_ptr<int> p) {
    ++*p;
    return p;
  }
};
TORCH_MODULE(Move);
struct RvalImpl : torch::nn::Module {
  T forward(T&& x) { return std::move(x) + 1; }
};
TORCH_MODULE(Rval);
struct NoexceptImpl : torch::nn::Module {
  T forward(T x) noexcept { return x + 1; }
};
TORCH_MODULE(Noexcept);
struct StaticImpl : torch::nn::Module {
  static T forward(T x) { return x + 1; }
};
TORCH_MODULE(Static);
struct NoneImpl : torch::nn::Module {
  T encode(T x) { return x + 1; }
  T decode(T x) { return x - 1; }
};
TORCH_MODULE(None);
struct PrivImpl : torch::nn::Module {
  T call(T x) { return forward(x); }

 private:
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(Priv);
struct MemberImpl : torch::nn::Module {
  std::function<T(T)> forward = [](T x) { return x + 7; };
};
TORCH_MODULE(Member);
struct MapImpl : torch::nn::Module {
  std::map<std::string, T> forward(std::map<std::string, T> m) {
    for (auto& [k, v] : m) v = v + 1;
    return m;
  }
};
TORCH_MODULE(Map);
struct VarImpl : torch::nn::Module {
  std::variant<T, int> forward(T x) { return x; }
};
TORCH_MODULE(Var);
struct CtorImpl : torch::nn::Module {
  CtorImpl(std::initializer_list<int> l) : n(l.size()) {}
  explicit CtorImpl(std::unique_ptr<int> p, int k = 3) : n(*p + k) {}
  template <class... A>
  CtorImpl(const char*, A&&... a) : n(sizeof...(a)) {}
  int n;
  T forward(T x) { return x + n; }
};
TORCH_MODULE(Ctor);
struct ProtImpl : torch::nn::Module {
  ProtImpl() = default;
  T forward(T x) { return x; }

 protected:
  ~ProtImpl() override = default;
};
struct CloneImpl : torch::nn::Cloneable<CloneImpl> {
  CloneImpl(int n = 2) : n(n) { reset(); }
  void reset() override { l = register_module("l", torch::nn::Linear(n, n)); }
  T forward(T x) { return l(x); }
  int n;
  torch::nn::Linear l{nullptr};
};
TORCH_MODULE(Clone);
template <int N>
struct TImpl : torch::nn::Module {
  T forward(T x) { return x + N; }
};
template <int N>
struct TT : torch::nn::ModuleHolder<TImpl<N>> {
  using torch::nn::ModuleHolder<TImpl<N>>::ModuleHolder;
};
using Seven = TT<7>;
struct MultiA {
  virtual ~MultiA() = default;
  virtual int id() { return 1; }
};
struct MultiImpl : MultiA, torch::nn::Module {
  int id() override { return 2; }
  T forward(T x) { return x * id(); }
};
TORCH_MODULE(Multi);
struct OpImpl : torch::nn::Module {
  T operator()(T x) { return x + 100; }
  T forward(T x) { return x + 1; }
};
TORCH_MODULE(Op);
struct AutoImpl : torch::nn::Module {
  auto forward(T x) { return std::make_tuple(x + 1, 5, std::string("s")); }
};
TORCH_MODULE(Auto);
}  // namespace inner
}  // namespace
using namespace inner;
TORCH_MODULE_IMPL(Alias, CloneImpl);
void run() {
  torch::manual_seed(0);
  T x = torch::ones({1});
  Over o;
  std::cout << o->forward(x) << o->forward(x, x) << "\n";
  Tmpl t;
  std::cout << t->forward(x, 3.0) << "\n";
  Const c;
  const Const cc;
  std::cout << c->forward(x) << cc->forward(x) << c(x) << "\n";
  Both bo;
  std::cout << bo->forward(x) << std::as_const(*bo).forward(x) << "\n";
  Defaults d;
  std::cout << d->forward(x) << d->forward(x, 1.) << d->forward(x, 1., "a") << d->forward(x, 1., "a", false)
            << d(x) << "\n";
  Void v;
  T y = x;
  v->forward(y);
  std::cout << y << "\n";
  Ref r;
  r->forward(x);
  r->forward(x) += 1;
  std::cout << r->state << "\n";
  Move m;
  std::cout << *m->forward(std::make_unique<int>(4)) << "\n";
  Rval rv;
  std::cout << rv->forward(x.clone()) << "\n";
  Noexcept ne;
  std::cout << ne->forward(x) << noexcept(ne->forward(x)) << "\n";
  Static st;
  std::cout << st->forward(x) << StaticImpl::forward(x) << "\n";
  None no;
  std::cout << no->encode(x) << no->decode(x) << "\n";
  Priv pr;
  std::cout << pr->call(x) << "\n";
  Member me;
  std::cout << me->forward(x) << "\n";
  Map ma;
  std::cout << ma->forward({{"a", x}})["a"] << "\n";
  Var va;
  std::cout << std::get<0>(va->forward(x)) << "\n";
  Ctor c1{std::initializer_list<int>{1, 2, 3}}, c2(std::make_unique<int>(5)), c3("x", 1, 2.0, "z");
  std::cout << c1->n << c2->n << c3->n << "\n";
  Clone cl(3);
  Clone cl2(std::dynamic_pointer_cast<CloneImpl>(cl->clone()));
  std::cout << cl2->forward(torch::ones({1, 3})) << "\n";
  Clone cl3(*cl), cl4(std::move(*std::make_unique<CloneImpl>(3)));
  std::cout << cl3->n << cl4->n << "\n";
  Alias al(4);
  std::cout << al->n << "\n";
  Seven s;
  std::cout << s->forward(x) << "\n";
  Multi mu;
  std::cout << mu->forward(x) << mu->id() << "\n";
  Op op;
  std::cout << op->forward(x) << op(x) << (*op)(x) << "\n";
  Auto au;
  auto [q, w, e] = au->forward(x);
  std::cout << q << w << e << "\n";
  torch::nn::Sequential seq(Clone(1), Clone(1));
  std::cout << seq->forward(x) << seq << "\n";
  torch::nn::AnyModule any(Defaults{});
  std::cout << any.forward(x, 1.0, std::string("zz"), false) << "\n";
  Clone nul = nullptr;
  std::cout << bool(nul) << nul.is_empty() << "\n";
  std::cout << cl->name() << " " << op->name() << " " << typeid(*cl).name() << " "
            << typeid(Clone::ContainedType).name() << " " << typeid(Clone::Impl).name() << " "
            << (typeid(*cl) == typeid(CloneImpl)) << "\n";
  std::vector<Clone> vec(3, Clone(2));
  std::map<std::string, Clone> mp{{"a", Clone(1)}};
  std::cout << vec.size() << mp.at("a")->n << "\n";
  std::shared_ptr<torch::nn::Module> base = cl.ptr();
  std::cout << (std::dynamic_pointer_cast<CloneImpl>(base) == cl.ptr()) << (base->as<Clone>() == cl.get())
            << (base->as<CloneImpl>() == cl.get()) << "\n";
  auto lam = [](const CloneImpl& i) { return i.n; };
  std::cout << lam(*cl) << "\n";
  auto mp2 = &CloneImpl::forward;
  std::cout << ((*cl).*mp2)(torch::ones({1, 3})).sizes() << "\n";
}
