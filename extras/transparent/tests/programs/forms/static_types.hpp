// Code that depends on the type that a holder returns.
struct NodeImpl : torch::nn::Module {
  explicit NodeImpl(int n = 1) : n(n) {}
  T forward(T x) { return x + n; }
  int n;
};
TORCH_MODULE(Node);
template <class Module>
const char* kind(const Module&) {
  return "any";
}
const char* kind(const NodeImpl&) {
  return "node";
}
template <class Module>
struct Trait {
  static constexpr int value = 0;
};
template <>
struct Trait<NodeImpl> {
  static constexpr int value = 1;
};
template <class Module>
int trait(Module&) {
  return Trait<Module>::value;
}
template <class Module>
T step(Module& module, T x) {
  return module.forward(x);
}
template <class Module>
auto copy_of(const Module& module) {
  return std::make_shared<Module>(module);
}

void run() {
  const T x = torch::ones({1});
  Node node(2);
  const Node same = node;
  static_assert(std::is_same_v<decltype(*node), NodeImpl&> &&
                std::is_same_v<decltype(*same), const NodeImpl&>);
  static_assert(std::is_same_v<decltype(node.get()), NodeImpl*> && std::is_same_v<Node::Impl, NodeImpl>);
  static_assert(std::is_base_of_v<torch::nn::ModuleHolder<NodeImpl>, Node> &&
                sizeof(Node) == sizeof(std::shared_ptr<NodeImpl>));
  static_assert(!std::is_default_constructible_v<NodeImpl> ||
                std::is_convertible_v<std::shared_ptr<NodeImpl>, Node>);
  static_assert(!std::is_convertible_v<int, Node> && std::is_constructible_v<Node, int> &&
                std::is_nothrow_move_constructible_v<Node>);
  std::cout << kind(*node) << kind(*node.get()) << trait(*node) << step(*node, x)
            << (typeid(*node) == typeid(NodeImpl)) << "\n";
  auto copy = *node;
  copy.n = 5;
  auto made = copy_of(*node);
  std::vector pointers{node.get()};
  pointers.push_back(made.get());
  std::vector values{*node, copy};
  values.push_back(NodeImpl(3));
  std::cout << copy.forward(x) << node->forward(x) << made->forward(x) << pointers.size() << values.back().n
            << (typeid(copy) == typeid(NodeImpl)) << copy.name() << "\n";
  auto& reference = *node;
  auto* pointer = node.get();
  std::cout << (&reference == pointer) << reference.forward(x) << pointer->forward(x)
            << node.ptr()->forward(x) << "\n";
  std::unordered_map<const NodeImpl*, int> order{{node.get(), 1}};
  std::cout << order.at(&*same) << std::hash<NodeImpl*>()(node.get()) % 1 << "\n";
  std::map<std::type_index, int> by_type{{typeid(NodeImpl), 4}};
  std::shared_ptr<torch::nn::Module> base = node.ptr();
  std::cout << by_type.at(typeid(*base)) << by_type.at(typeid(*node)) << base->name() << "\n";
}
