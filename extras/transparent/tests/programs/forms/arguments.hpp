// Arguments that cannot be copied although their types say so, that are kept by address, or that change when
// they are read.
struct Helper {
  int k = 2;
};
struct Pouch {
  std::vector<std::unique_ptr<Helper>> helpers;
};
using Helpers = std::vector<std::unique_ptr<Helper>>;
using Named = std::map<std::string, std::unique_ptr<Helper>>;

struct VectorImpl : torch::nn::Module {
  T forward(T x, const Helpers& h) { return x + h.at(0)->k; }
};
TORCH_MODULE(Vector);
struct MapImpl : torch::nn::Module {
  T forward(T x, const Named& h) { return x + h.at("a")->k; }
};
TORCH_MODULE(Map);
struct BagImpl : torch::nn::Module {
  T forward(T x, const Pouch& b, const std::pair<T, Pouch>& p, const std::vector<Pouch>& v) {
    return x + b.helpers.at(0)->k + p.first + static_cast<double>(p.second.helpers.size() + v.size());
  }
};
TORCH_MODULE(Bag);
struct OthersImpl : torch::nn::Module {
  T forward(T x, const std::deque<std::unique_ptr<Helper>>& h, const std::list<std::unique_ptr<Helper>>& l,
            const std::unordered_map<int, std::unique_ptr<Helper>>& u, const std::optional<Named>& o,
            const std::tuple<int, Helpers>& t, const std::array<Helpers, 2>& a, Helpers&& r) {
    return x + static_cast<double>(h.size() + l.size() + u.size() + o.has_value() + std::get<1>(t).size() +
                                   a.size() + r.size());
  }
};
TORCH_MODULE(Others);
struct SharedImpl : torch::nn::Module {
  T forward(T x, std::shared_ptr<Helpers> h, const std::shared_ptr<const Named>& n, std::shared_ptr<Pouch> b,
            c10::ArrayRef<std::unique_ptr<Helper>> r, c10::ArrayRef<Pouch> v) {
    return x + h->at(0)->k + static_cast<double>(n->size() + b->helpers.size() + r.size() + v.size());
  }
};
TORCH_MODULE(Shared);
struct AnyImpl : torch::nn::Module {
  T forward(std::any x) { return std::any_cast<T>(x) + 1; }
};
TORCH_MODULE(Any);
struct AnyReferenceImpl : torch::nn::Module {
  T forward(const std::any& x, const std::map<std::string, std::any>& more = {}) {
    return std::any_cast<T>(x) + (more.empty() ? 1 : std::any_cast<int>(more.at("k")));
  }
};
TORCH_MODULE(AnyReference);
/// Can be made of anything.
struct Words {
  std::string text;
  template <class X>
  Words(const X& x) {
    std::ostringstream out;
    out << x;
    text = out.str();
  }
  Words(const Words&) = default;
};
struct TextImpl : torch::nn::Module {
  T forward(T x, Words value, const Words& more = 1) {
    return x + static_cast<double>(value.text.size() + more.text.size());
  }
};
TORCH_MODULE(Text);
struct Config {
  int k = 1;
  mutable int seen = 0;
};
struct KeepsImpl : torch::nn::Module {
  const Config* last = nullptr;
  T forward(T x, const Config& c) {
    last = &c;
    ++c.seen;
    return x + c.k;
  }
};
TORCH_MODULE(Keeps);
struct PointersImpl : torch::nn::Module {
  T forward(T xs[], int n, char** /*argv*/, const void* /*p*/, T* out, std::nullptr_t, const T (&pair)[2]) {
    *out = xs[n - 1] + pair[1];
    return *out;
  }
};
TORCH_MODULE(Pointers);
struct Abstract {
  virtual ~Abstract() = default;
  virtual T go(T x) const = 0;
};
struct Twice : Abstract {
  T go(T x) const override { return x * 2; }
};
struct StrategyImpl : torch::nn::Module {
  T forward(T x, const Abstract& a, std::shared_ptr<const Abstract> b, std::unique_ptr<Abstract> c,
            Abstract&& d) {
    return d.go(c->go(b->go(a.go(x))));
  }
};
TORCH_MODULE(Strategy);
struct Reference {
  T a;
  int& r;
};
struct RefersImpl : torch::nn::Module {
  Reference forward(Reference s, std::pair<T, Reference> p, std::optional<std::pair<int, T>> q = {}) {
    s.r += p.second.r + q.has_value();
    return s;
  }
};
TORCH_MODULE(Refers);
struct DeferredImpl : torch::nn::Module {
  std::future<T> forward(const T& x) {
    return std::async(std::launch::deferred, [&x] { return x + 1; });
  }
};
TORCH_MODULE(Deferred);
/// A default that cannot be made, and is never used.
template <class Mask>
struct MaskedImpl : torch::nn::Module {
  T forward(T x, Mask m = Mask()) { return x + m.k; }
};
struct Causal {
  int k;
  explicit Causal(int k) : k(k) {}
};
struct Masked : torch::nn::ModuleHolder<MaskedImpl<Causal>> {
  using torch::nn::ModuleHolder<MaskedImpl<Causal>>::ModuleHolder;
};

Helpers helpers() {
  Helpers made;
  made.push_back(std::make_unique<Helper>());
  return made;
}

void run() {
  const T x = torch::ones({1});
  Named named;
  named["a"] = std::make_unique<Helper>();
  Pouch pouch;
  pouch.helpers = helpers();
  std::cout << Vector()->forward(x, helpers()) << Map()(x, named)
            << Bag()->forward(x, pouch, {x, Pouch()}, {})
            << Others()->forward(x, {}, {}, {}, {}, {}, {}, helpers())
            << Shared()->forward(x, std::make_shared<Helpers>(helpers()), std::make_shared<Named>(),
                                 std::make_shared<Pouch>(), helpers(), {})
            << "\n";
  std::cout << Any()->forward(x) << Any()(std::any(x)) << AnyReference()->forward(x)
            << AnyReference()->forward(x, {{"k", 3}}) << "\n";
  std::cout << Text()->forward(x, 12345) << Text()->forward(x, "a", 1.5) << "\n";
  Keeps keeps;
  const Config config;
  std::cout << keeps->forward(x, config) << (keeps->last == &config) << config.seen << "\n";
  T xs[2] = {x, x * 2}, out;
  std::cout << Pointers()->forward(xs, 2, nullptr, nullptr, &out, nullptr, xs) << out << "\n";
  std::cout << Strategy()->forward(x, Twice(), std::make_shared<Twice>(), std::make_unique<Twice>(), Twice())
            << "\n";
  int n = 1;
  std::cout << Refers()->forward(Reference{x, n}, {x, Reference{x, n}}).a << n << "\n";
  std::cout << Deferred()->forward(x).get() << Masked()->forward(x, Causal(3)) << "\n";
}
