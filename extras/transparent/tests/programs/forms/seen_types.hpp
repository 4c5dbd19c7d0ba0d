// Code around the types of holders and of modules behind them.
namespace derived {
struct AImpl : torch::nn::Module {
  virtual T forward(T x) { return x + 1; }
};
TORCH_MODULE(A);
struct BImpl : AImpl {
  T forward(T x) override { return x + 2; }
  int k = 5;
};
TORCH_MODULE(B);
struct CImpl final : AImpl {
  int k = 7;
};
TORCH_MODULE(C);
struct Extra {
  virtual ~Extra() = default;
  int extra = 9;
};
struct DImpl : AImpl, Extra {};
TORCH_MODULE(D);

void run() {
  torch::nn::ModuleList list(A{}, B{}, C{}, D{});
  for (const auto& module : *list) {
    auto* a = module->as<A>();
    const auto* constant = static_cast<const torch::nn::Module&>(*module).as<A>();
    const auto* b = dynamic_cast<BImpl*>(a);
    const auto* c = dynamic_cast<const CImpl*>(constant);
    const auto* extra = dynamic_cast<Extra*>(a);
    std::cout << (b == nullptr ? 0 : b->k) << (c == nullptr ? 0 : c->k)
              << (extra == nullptr ? 0 : extra->extra) << (module->as<B>() == nullptr)
              << (dynamic_cast<void*>(a) == module.get());
    try {
      std::cout << dynamic_cast<DImpl&>(*a).extra << "\n";
    } catch (const std::bad_cast&) {
      std::cout << "no\n";
    }
  }
  A holder(std::static_pointer_cast<AImpl>(B().ptr()));
  std::cout << (dynamic_cast<BImpl*>(holder.operator->()) != nullptr) << (dynamic_cast<BImpl*>(&*holder)->k)
            << static_cast<BImpl*>(holder.get())->k << static_cast<BImpl&>(*holder).k << "\n";
}
}  // namespace derived

namespace exact {  // the module's own type by its name, *, get() and ptr()
struct BlockImpl : torch::nn::Module {
  T w = torch::ones({1});
  int k = 1;
  T forward(T x) { return x + w; }
};
TORCH_MODULE(Block);
template <class M>
void init(M& /*module*/) {
  std::cout << "any\n";
}
void init(BlockImpl& block) {
  block.w.fill_(7);
  std::cout << "block\n";
}
void run() {
  torch::nn::ModuleList list(Block{}, Block{});
  for (const auto& module : *list) {
    if (auto* block = module->as<BlockImpl>()) init(*block);
    BlockImpl* pointer = module->as<Block>();
    init(*pointer);
    BlockImpl copy = *module->as<Block>();
    auto other = *module->as<BlockImpl>();
    std::cout << (typeid(copy) == typeid(BlockImpl)) << other.name() << other.forward(torch::ones({1}))
              << "\n";
  }
  auto find = [](torch::nn::Module& module) -> BlockImpl* { return module.as<Block>(); };
  Block block;
  init(*block);
  std::map<BlockImpl*, int> order{{block->as<Block>(), 1}};
  std::cout << (find(*block) == block.get()) << order.count(block.operator->()) << "\n";
  torch::nn::Sequential entries;
  entries->push_back(std::make_shared<std::decay_t<decltype(*block)>>());
  std::cout << entries->forward(torch::ones({1})) << "\n";
}
}  // namespace exact

namespace shared_twice {  // a second std::enable_shared_from_this
struct CImpl : torch::nn::Cloneable<CImpl>, std::enable_shared_from_this<CImpl> {
  void reset() override {}
  T forward(T x) { return x + 2; }
};
TORCH_MODULE(C);
void run() {
  C c;
  std::cout << c(torch::ones({1})) << std::dynamic_pointer_cast<CImpl>(c->clone())->forward(torch::ones({1}))
            << "\n";
}
}  // namespace shared_twice

namespace holders {
template <template <class> class H, class I>
std::size_t letters(const H<I>& holder) {
  return holder->name().size();
}
struct PrivateImpl : torch::nn::Module {
  T forward(T x) { return x + 1; }
};
class Private : torch::nn::ModuleHolder<PrivateImpl> {
 public:
  using ModuleHolder::get;
  using ModuleHolder::ModuleHolder;
  using ModuleHolder::ptr;
  using ModuleHolder::operator();
  using ModuleHolder::operator->;
};
struct DefaultsImpl : torch::nn::Module {
  T forward(T x, int k, double a) { return x + k * a; }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(3)}, {2, torch::nn::AnyValue(2.0)})
};
TORCH_MODULE(Defaults);
struct Pool {
  static void* operator new(std::size_t n) { return ::operator new(n); }

 protected:
  static void operator delete(void* p) { ::operator delete(p); }
  friend struct PooledImpl;
};
struct PooledImpl : torch::nn::Module, Pool {
  static std::shared_ptr<PooledImpl> make() {
    return std::shared_ptr<PooledImpl>(new PooledImpl, [](PooledImpl* p) { delete p; });
  }
  T forward(T x) { return x + 1; }
};
struct LazilyMade {
  std::shared_ptr<torch::nn::ReLU> relu;
  torch::nn::ReLU& operator->() {
    if (!relu) relu = std::make_shared<torch::nn::ReLU>();
    return *relu;
  }
};
struct LazyImpl : torch::nn::Module {
  LazilyMade inner;
  T forward(T x) { return inner->forward(x); }
};
TORCH_MODULE(Lazy);
struct LazyHolder {
  Lazy lazy;
  Lazy operator->() { return lazy; }
};
template <class Impl, class... A>
auto make(A&&... a) {
  struct Holder : torch::nn::ModuleHolder<Impl> {
    using torch::nn::ModuleHolder<Impl>::ModuleHolder;
  };
  return Holder(std::forward<A>(a)...);
}
struct LaterImpl;
class Later : public torch::nn::ModuleHolder<LaterImpl> {
 public:
  using torch::nn::ModuleHolder<LaterImpl>::ModuleHolder;
  using Impl = LaterImpl;
  Later with(int k);
  static Later of(int k);
};
struct LaterImpl : torch::nn::Module {
  int k;
  explicit LaterImpl(int k = 0) : k(k) {}
  T forward(T x) { return x + k; }
};
Later Later::with(int k) {
  (*this)->k = k;
  return *this;
}
Later Later::of(int k) {
  return Later(k);
}
template <class H>
struct Traits;
template <class I>
struct Traits<torch::nn::ModuleHolder<I>> {
  static constexpr int value = 1;
};
template <class H, class = void>
struct IsHolder : std::false_type {};
template <class H>
struct IsHolder<H, std::void_t<typename H::ContainedType>>
    : std::is_base_of<torch::nn::ModuleHolder<typename H::ContainedType>, H> {};
template <class M>
T run_any(M module, T x) {
  if constexpr (IsHolder<M>::value) {
    return module->forward(x);
  } else {
    return module(x);
  }
}
void run() {
  const T x = torch::ones({1});
  std::cout << letters(torch::nn::Linear(2, 2)) << "\n";
  Private hidden;
  std::cout << hidden(x) << hidden->forward(x) << (hidden.get() == hidden.ptr().get()) << "\n";
  torch::nn::Sequential entries(Defaults{}, torch::nn::ReLU());
  torch::nn::AnyModule any(Defaults{});
  std::cout << entries->forward(x) << any.forward(x) << any.forward(x, 2) << "\n";
  torch::nn::ModuleHolder<PooledImpl> pooled(PooledImpl::make());
  LazyHolder lazy;
  std::cout << pooled->forward(x) << lazy->forward(-x) << "\n";
  struct LocalImpl : torch::nn::Module {
    int k;
    explicit LocalImpl(int k) : k(k) {}
    T forward(T x) { return x + k; }
  };
  auto local = make<LocalImpl>(4);
  auto call = [local](T x) mutable { return local(x); };
  std::cout << local->forward(x) << call(x) << Later::of(3).with(4)->forward(x) << "\n";
  static_assert(std::is_base_of_v<torch::detail::ModuleHolderIndicator, Later>);
  std::cout << Traits<torch::nn::ModuleHolder<LaterImpl>>::value << IsHolder<Lazy>::value
            << IsHolder<int>::value << run_any(Later(1), x) << run_any([](T x) { return x; }, x) << "\n";
}
}  // namespace holders

void run() {
  derived::run();
  exact::run();
  shared_twice::run();
  holders::run();
}
