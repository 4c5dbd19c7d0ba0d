// Rare signatures of forward.
struct Pending;
struct Fixed {
  explicit Fixed(int value) : value(value) {}
  Fixed(const Fixed&) = delete;
  Fixed& operator=(const Fixed&) = delete;
  int value;
};
struct NoArgumentsImpl : torch::nn::Module {
  T forward() { return torch::ones({1}); }
};
TORCH_MODULE(NoArguments);
struct AllDefaultsImpl : torch::nn::Module {
  T forward(double a = 1, double b = 2, double c = 3) { return torch::full({1}, a + 10 * b + 100 * c); }
};
TORCH_MODULE(AllDefaults);
struct PendingUserImpl : torch::nn::Module {
  T forward(T x, const Pending& p);
};
TORCH_MODULE(PendingUser);
struct FixedByReferenceImpl : torch::nn::Module {
  T forward(const Fixed& f, Fixed& g) {
    g.value += f.value;
    return torch::full({1}, g.value);
  }
};
TORCH_MODULE(FixedByReference);
struct FixedResultImpl : torch::nn::Module {
  Fixed forward(int value) { return Fixed(value + 1); }
};
TORCH_MODULE(FixedResult);
struct FixedByRvalueImpl : torch::nn::Module {
  int forward(Fixed&& f) { return f.value; }
};
TORCH_MODULE(FixedByRvalue);
struct VolatileImpl : torch::nn::Module {
  int forward(int x) volatile { return x + 1; }
};
TORCH_MODULE(Volatile);
struct RvalueSelfImpl : torch::nn::Module {
  int forward(int x) && { return x + 2; }
};
TORCH_MODULE(RvalueSelf);
struct VariadicImpl : torch::nn::Module {
  int forward(int x, ...) { return x + 3; }
};
TORCH_MODULE(Variadic);
struct PackImpl : torch::nn::Module {
  template <class... A>
  T forward(T x, A... more) {
    return x + (0 + ... + more);
  }
};
TORCH_MODULE(Pack);
struct ListsImpl : torch::nn::Module {
  T forward(std::vector<T> parts, std::initializer_list<double> factors = {1, 2}) {
    T sum = torch::zeros({1});
    auto f = factors.begin();
    for (auto& part : parts) {
      sum = sum + part * *f;
      ++f;
    }
    return sum;
  }
};
TORCH_MODULE(Lists);
struct FunctionImpl : torch::nn::Module {
  T forward(T x, const std::function<T(T)>& f, T (*g)(T)) { return g(f(x)); }
};
TORCH_MODULE(Function);
struct ArrayImpl : torch::nn::Module {
  T forward(const double (&weights)[2], T x) { return x * weights[0] + weights[1]; }
};
TORCH_MODULE(Array);
struct PointerImpl : torch::nn::Module {
  T* forward(T* x) {
    *x = *x + 1;
    return x;
  }
};
TORCH_MODULE(Pointer);
struct AutoImpl : torch::nn::Module {
  auto forward(T x) {
    struct Local {
      T a;
      int n;
    };
    return Local{x + 1, 5};
  }
};
TORCH_MODULE(Auto);
struct TrailingImpl : torch::nn::Module {
  auto forward(T x) const -> T { return x + 1; }
};
TORCH_MODULE(Trailing);
struct DeletedImpl : torch::nn::Module {
  T forward(T) = delete;
  int n = 4;
};
TORCH_MODULE(Deleted);
struct ProtectedImpl : torch::nn::Module {
  friend struct Friendly;

 protected:
  T forward(T x) { return x + 8; }
};
TORCH_MODULE(Protected);
struct Friendly {
  T operator()(Protected& p, T x) { return p->forward(x); }
};
struct AmbiguousLeft {
  T forward(T x) { return x + 1; }
};
struct AmbiguousRight {
  T forward(T x) { return x + 2; }
};
struct AmbiguousImpl : torch::nn::Module, AmbiguousLeft, AmbiguousRight {
  int n = 6;
};
TORCH_MODULE(Ambiguous);
struct MixinImpl : torch::nn::Module, AmbiguousLeft {};
TORCH_MODULE(Mixin);
struct UsingImpl : torch::nn::LinearImpl {
  using LinearImpl::forward;
  using LinearImpl::LinearImpl;
  T forward(T x, double k) { return LinearImpl::forward(x) * k; }
};
TORCH_MODULE(Using);
struct PrivateBase {
 protected:
  T forward(T x) { return x + 3; }
};
struct PublishedImpl : torch::nn::Module, private PrivateBase {
  using PrivateBase::forward;
};
TORCH_MODULE(Published);
#if __cplusplus >= 202002L
template <class U>
struct RequiresImpl : torch::nn::Module {
  U forward(U x) requires(sizeof(U) > 1) { return x + 1; }
};
using Requires = torch::nn::ModuleHolder<RequiresImpl<T>>;
struct AbbreviatedImpl : torch::nn::Module {
  T forward(const auto& x) { return x + 1; }
};
TORCH_MODULE(Abbreviated);
#endif
struct Pending {
  double k = 2;
};
inline T PendingUserImpl::forward(T x, const Pending& p) {
  return x * p.k;
}

void run() {
  const T x = torch::ones({1});
  std::cout << NoArguments()->forward() << NoArguments()() << "\n";
  std::cout << PendingUser()->forward(x, Pending()) << "\n";
  AllDefaults all;
  std::cout << all->forward() << all->forward(5) << all->forward(5, 6) << all->forward(5, 6, 7) << all()
            << "\n";
  Fixed f(2), g(3);
  std::cout << FixedByReference()->forward(f, g) << g.value << FixedResult()->forward(4).value
            << FixedByRvalue()->forward(Fixed(9)) << "\n";
  std::cout << Volatile()->forward(1) << std::move(*RvalueSelf()).forward(1)
            << Variadic()->forward(1, 2, "three") << Pack()->forward(x, 1, 2.5) << "\n";
  std::cout << Lists()->forward({x, x}) << Lists()->forward({x, x}, {3, 4}) << Lists()->forward({}) << "\n";
  std::cout << Function()->forward(
                   x, [](T t) { return t + 1; }, [](T t) { return t * 3; })
            << Array()->forward({2, 3}, x) << "\n";
  T y = x.clone();
  std::cout << (Pointer()->forward(&y) == &y) << y << "\n";
  const auto local = Auto()->forward(x);
  std::cout << local.a << local.n << Trailing()->forward(x) << Deleted()->n << "\n";
  Protected p;
  std::cout << Friendly()(p, x) << Ambiguous()->n << Ambiguous()->AmbiguousRight::forward(x)
            << Mixin()->forward(x) << Published()->forward(x) << "\n";
  torch::manual_seed(0);
  Using u(1, 1);
  std::cout << (u->forward(torch::ones({1, 1})) * 3).equal(u->forward(torch::ones({1, 1}), 3)) << "\n";
#if __cplusplus >= 202002L
  std::cout << Requires()->forward(x) << Abbreviated()->forward(x) << "\n";
#endif
}
