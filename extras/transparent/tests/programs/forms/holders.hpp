// Holders not made by TORCH_MODULE, and modules that only their holder may make.
template <class Block>
struct StackImpl : torch::nn::Module {
  explicit StackImpl(int depth) {
    for (int i = 0; i < depth; ++i) blocks->push_back(Block(2));
    register_module("blocks", blocks);
  }
  T forward(T x) {
    for (auto& block : *blocks) x = block->template as<Block>()->forward(x);
    return x;
  }
  torch::nn::ModuleList blocks;
};
struct UnitImpl : torch::nn::Module {
  explicit UnitImpl(int factor) : factor(factor) {}
  T forward(T x) { return x * factor; }
  int factor;
};
TORCH_MODULE(Unit);
template <class Block = Unit>
class Stack : public torch::nn::ModuleHolder<StackImpl<Block>> {
 public:
  using torch::nn::ModuleHolder<StackImpl<Block>>::ModuleHolder;
};
class SecretImpl : public torch::nn::Module {
 public:
  T forward(T x) { return x + value_; }

 private:
  friend class torch::nn::ModuleHolder<SecretImpl>;
  explicit SecretImpl(int value) : value_(value) {}
  int value_;
};
struct Extended : torch::nn::ModuleHolder<UnitImpl> {
  using torch::nn::ModuleHolder<UnitImpl>::ModuleHolder;
  Extended() : ModuleHolder(std::make_shared<UnitImpl>(7)) {}
  int factor() const { return impl_->factor; }
  T twice(T x) { return impl_->forward(get()->forward(x)); }
};
struct IndexedImpl : torch::nn::Module {
  int& operator[](int i) { return values[i]; }
  T forward(T x) { return x + values[1]; }
  std::vector<int> values{1, 2, 3};
};
TORCH_MODULE(Indexed);
struct OwnerImpl : torch::nn::Module {
  torch::nn::ModuleHolder<UnitImpl> unit{3};
  const Unit fixed{5};
  std::map<std::string, Unit> named{{"a", Unit(2)}};
  T forward(T x) { return named.at("a")->forward((*fixed).factor * unit(x)); }
};
TORCH_MODULE(Owner);

void run() {
  const T x = torch::ones({1});
  Stack<> stack(2);
  std::cout << stack->forward(x) << stack(x) << stack->blocks->size() << "\n";
  torch::nn::ModuleHolder<SecretImpl> secret(4);
  std::cout << secret->forward(x) << secret(x) << "\n";
  Extended extended;
  std::cout << extended->forward(x) << extended.twice(x) << extended.factor() << Extended(3)->factor << "\n";
  Indexed indexed;
  indexed->values[1] = 9;
  std::cout << indexed->forward(x) << indexed[0] << "\n";
  std::cout << Owner()->forward(x) << "\n";
  std::vector<Unit> units{Unit(1), Unit(2), Unit(3)};
  std::sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a->factor > b->factor; });
  T y = x;
  for (auto& unit : units) y = unit->forward(y);
  for (const auto& unit : units) std::cout << unit->factor << unit.ptr().use_count();
  std::cout << y << "\n";
  std::shared_ptr<torch::nn::Module> erased = units[0].ptr();
  std::cout << erased->as<Unit>()->factor << (erased->as<Stack<>>() == nullptr)
            << (erased->as<UnitImpl>() == units[0].get()) << "\n";
}
