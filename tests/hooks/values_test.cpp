// Values that contain tensors: how hooks see and replace the tensors.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <deque>
#include <list>
#include <map>
#include <set>
#include <unordered_map>
#include <variant>

#include <torchtap/hooks/hooks.hpp>

#include "support.hpp"

namespace hooks = torchtap::hooks;
using hooks::Event;
using hooks::Kind;
using support::contains;
using support::message_of;
using Tensors = std::vector<at::Tensor>;

namespace values {

struct Latent {
  at::Tensor mean, deviation;
};
/// Can be moved and read, not copied.
struct Single {
  explicit Single(at::Tensor x) : tensor(std::move(x)) {}
  Single(const Single&) = delete;
  Single(Single&&) = default;
  at::Tensor tensor;
};
struct Unknown {
  at::Tensor tensor;
  std::string name;
};
struct Incomplete;
struct Config {
  int width = 3;
  double scale = 2;
};
struct Base {
  virtual ~Base() = default;
  virtual int times() const = 0;
};
struct Twice : Base {
  int times() const override { return 2; }
};
struct Key {
  int id;
  bool operator==(const Key& other) const { return id == other.id; }
};
struct HashKey {
  std::size_t operator()(const Key& key) const { return static_cast<std::size_t>(key.id); }
};

/// Whose `Visit` registers another type, so that it changes what is registered while that is asked for.
struct Registrant {
  at::Tensor tensor;
};

/// Returns its argument.
template <class T>
struct EchoImpl : torch::nn::Module {
  T forward(T value) { return value; }
};
template <class T>
auto echo() {
  return std::make_shared<hooks::Hooked<EchoImpl<T>>>();
}

using List = c10::List<at::Tensor>;
using Dict = c10::Dict<std::string, at::Tensor>;
using Packed = torch::nn::utils::rnn::PackedSequence;

/// The tensors in a value, found by hand.
Tensors parts(const at::Tensor& value) {
  return {value};
}
Tensors parts(const Latent& value) {
  return {value.mean, value.deviation};
}
Tensors parts(const Single& value) {
  return {value.tensor};
}
Tensors parts(const Packed& value) {
  return {value.data(), value.batch_sizes(), value.sorted_indices(), value.unsorted_indices()};
}
template <class T>
Tensors parts(const std::unique_ptr<T>& value) {
  return parts(*value);
}
template <class T>
Tensors parts(const std::shared_ptr<T>& value) {
  return parts(*value);
}
void append(Tensors& all, const Tensors& more) {
  all.insert(all.end(), more.begin(), more.end());
}
Tensors parts(const List& value) {
  Tensors all;
  for (const auto& part : value.vec()) all.push_back(part);
  return all;
}
Tensors parts(const Dict& value) {
  Tensors all;
  for (const auto& entry : value) all.push_back(entry.value());
  return all;
}
Tensors parts(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  Tensors all;
  if (value.isTuple()) {
    for (const auto& part : value.toTupleRef().elements()) append(all, parts(part));
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) append(all, parts(entry.value()));
  } else if (value.isList()) {
    for (const auto& part : value.toListRef()) append(all, parts(part));
  }
  return all;
}
Tensors parts(const std::list<at::Tensor>& value) {
  return {value.begin(), value.end()};
}
Tensors parts(const std::deque<at::Tensor>& value) {
  return {value.begin(), value.end()};
}
Tensors parts(const std::map<std::string, at::Tensor>& value) {
  Tensors all;
  for (const auto& entry : value) all.push_back(entry.second);
  return all;
}
Tensors parts(const std::unordered_map<std::string, at::Tensor>& value) {
  return parts(std::map<std::string, at::Tensor>(value.begin(), value.end()));
}
Tensors parts(const torch::OrderedDict<std::string, at::Tensor>& value) {
  return value.values();
}
Tensors parts(const std::variant<int, at::Tensor, Tensors>& value) {
  if (const auto* one = std::get_if<at::Tensor>(&value)) return {*one};
  const auto* several = std::get_if<Tensors>(&value);
  return several == nullptr ? Tensors() : *several;
}
Tensors parts(const c10::optional<std::map<std::string, at::Tensor>>& value) {
  return value.has_value() ? parts(*value) : Tensors();
}
Tensors parts(const std::map<std::string, Tensors>& value) {
  Tensors all;
  for (const auto& entry : value) append(all, entry.second);
  return all;
}
template <class A, class B>
Tensors parts(const std::tuple<A, B>& value) {
  Tensors all = parts(std::get<0>(value));
  append(all, parts(std::get<1>(value)));
  return all;
}

Tensors seen_in(const hooks::Tensors& tensors) {
  Tensors all;
  for (std::int64_t i = 0; i < tensors.size(); ++i) all.push_back(tensors[i]);
  return all;
}

bool same(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].is_same(b[i])) return false;
  }
  return true;
}

/// The expectations for every type. `attach` and `call` hook and call the module; `make` makes a value.
template <class T, class Make, class Attach, class Call>
void check(Make make, Attach attach, Call call) {
  T value = make();
  const Tensors given = parts(value);
  BOOST_REQUIRE(!given.empty());
  {
    Tensors before, after, out;
    const auto a = attach(Kind::forward_pre, [&](Event& e) { before = seen_in(e.inputs()); });
    const auto b = attach(Kind::forward, [&](Event& e) {
      after = seen_in(e.inputs());
      out = seen_in(e.outputs());
    });
    const T result = call(std::move(value));
    BOOST_TEST(same(before, given));
    BOOST_TEST(same(after, given));
    BOOST_TEST(same(out, given));
    BOOST_TEST(same(parts(result), given));
  }
  for (const Kind kind : {Kind::forward_pre, Kind::forward_output}) {
    const auto handle = attach(kind, [&](Event& e) {
      hooks::Tensors& tensors = kind == Kind::forward_pre ? e.inputs() : e.outputs();
      tensors[0] = tensors[0] * 2;
    });
    T mine = make();
    const Tensors before = parts(mine);
    T kept = [&]() -> T {
      if constexpr (std::is_copy_constructible_v<T>) return mine;
      return make();
    }();
    const Tensors got = parts(call(std::move(mine)));
    BOOST_REQUIRE(got.size() == before.size());
    BOOST_TEST(at::equal(got[0], before[0] * 2), "what is put in arrives");
    for (std::size_t i = 1; i < got.size(); ++i) BOOST_TEST(support::identical(got[i], before[i]));
    if (std::is_copy_constructible_v<T>) BOOST_TEST(same(parts(kept), before), "the caller's stays");
  }
  {
    std::map<std::int64_t, at::Tensor> in, out;
    const auto a = attach(Kind::backward_input, [&](Event& e) { in[e.slot()] = e.gradient().clone(); });
    const auto b = attach(Kind::backward_output, [&](Event& e) { out[e.slot()] = e.gradient().clone(); });
    T mine = make();
    const Tensors leaves = parts(mine);
    at::Tensor loss = at::zeros({});
    double weight = 1;
    for (const auto& part : parts(call(std::move(mine)))) {
      if (part.defined() && part.is_floating_point()) loss = loss + (part * weight++).sum();
    }
    loss.backward();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].defined() || !leaves[i].requires_grad()) continue;
      const auto slot = static_cast<std::int64_t>(i);
      BOOST_REQUIRE(in.count(slot) == 1);
      BOOST_REQUIRE(out.count(slot) == 1);
      BOOST_TEST(at::equal(in[slot], leaves[i].grad()));
      BOOST_TEST(at::equal(out[slot], leaves[i].grad()));
    }
  }
}

template <class T, class Make>
void check_own(Make make) {
  BOOST_TEST_CONTEXT("own type, " << c10::demangle(typeid(T).name())) {
    auto module = echo<T>();
    check<T>(
        make, [&](Kind kind, hooks::Callback callback) { return hooks::attach(*module, kind, callback); },
        [&](T value) { return module->forward(std::move(value)); });
  }
}

template <class T, class Make>
void check_everywhere(Make make) {
  check_own<T>(make);
  BOOST_TEST_CONTEXT("AnyModule, " << c10::demangle(typeid(T).name())) {
    torch::nn::AnyModule module(std::make_shared<EchoImpl<T>>());
    check<T>(
        make, [&](Kind kind, hooks::Callback callback) { return hooks::attach(module, kind, callback); },
        [&](T value) { return module.template forward<T>(std::move(value)); });
  }
}

at::Tensor leaf(double number) {
  return at::full({2}, number).set_requires_grad(true);
}

}  // namespace values

template <>
struct torchtap::hooks::Visit<values::Latent> {
  template <class Visitor>
  static void apply(values::Latent& value, Visitor&& visit) {
    visit(value.mean);
    visit(value.deviation);
  }
};
template <>
struct torchtap::hooks::Visit<values::Single> {
  template <class Visitor>
  static void apply(values::Single& value, Visitor&& visit) {
    visit(value.tensor);
  }
};

template <>
struct torchtap::hooks::Visit<values::Registrant> {
  template <class Visitor>
  static void apply(values::Registrant& value, Visitor&& visit) {
    torchtap::hooks::register_value<std::deque<values::Latent>>();
    visit(value.tensor);
  }
};

using namespace values;

BOOST_AUTO_TEST_SUITE(values_in_calls)

BOOST_AUTO_TEST_CASE(a_visit_may_register_a_type, *boost::unit_test::timeout(60)) {
  hooks::register_value<Registrant>();
  torch::nn::AnyModule module(std::make_shared<EchoImpl<Registrant>>());
  at::Tensor seen;
  const auto handle = hooks::attach(module, Kind::forward_output, [&](Event& e) { seen = e.outputs()[0]; });
  const at::Tensor x = leaf(3);
  module.forward<Registrant>(Registrant{x});
  BOOST_TEST(seen.is_same(x));
}

BOOST_AUTO_TEST_CASE(containers) {
  check_everywhere<std::map<std::string, at::Tensor>>([] {
    return std::map<std::string, at::Tensor>{{"scores", leaf(2)}, {"boxes", leaf(1)}};
  });
  check_everywhere<std::unordered_map<std::string, at::Tensor>>([] {
    std::unordered_map<std::string, at::Tensor> map;
    for (int i = 9; i >= 0; --i) map.emplace("c" + std::to_string(i), leaf(i));
    return map;
  });
  check_everywhere<std::map<std::string, Tensors>>([] {
    return std::map<std::string, Tensors>{{"levels", {leaf(1), leaf(2)}}, {"empty", {}}, {"top", {leaf(3)}}};
  });
  check_everywhere<torch::OrderedDict<std::string, at::Tensor>>([] {
    torch::OrderedDict<std::string, at::Tensor> dict;
    dict.insert("z", leaf(1));
    dict.insert("a", leaf(2));
    return dict;
  });
  check_everywhere<std::list<at::Tensor>>([] { return std::list<at::Tensor>{leaf(1), leaf(2)}; });
  check_everywhere<std::deque<at::Tensor>>([] { return std::deque<at::Tensor>{leaf(1), leaf(2)}; });
  check_own<std::variant<int, at::Tensor, Tensors>>([] {
    return std::variant<int, at::Tensor, Tensors>(Tensors{leaf(1), leaf(2)});
  });
  check_own<c10::optional<std::map<std::string, at::Tensor>>>([] {
    return c10::optional<std::map<std::string, at::Tensor>>({{"a", leaf(1)}});
  });
}

BOOST_AUTO_TEST_CASE(what_torchscript_has) {
  check_everywhere<List>([] { return List({leaf(1), leaf(2)}); });
  check_everywhere<Dict>([] {
    Dict dict;
    dict.insert("z", leaf(1));
    dict.insert("a", leaf(2));
    return dict;
  });
  check_everywhere<c10::IValue>([] { return c10::IValue(leaf(1)); });
  check_everywhere<c10::IValue>([] {
    Dict dict;
    dict.insert("z", leaf(1));
    dict.insert("a", leaf(2));
    return c10::IValue(c10::ivalue::Tuple::create(
        {dict, c10::IValue(), List({leaf(3)}), std::int64_t{7}, c10::ivalue::Tuple::create({leaf(4)})}));
  });
}

BOOST_AUTO_TEST_CASE(pointers) {
  check_own<std::unique_ptr<Latent>>([] { return std::make_unique<Latent>(Latent{leaf(1), leaf(2)}); });
  check_own<std::shared_ptr<Latent>>([] { return std::make_shared<Latent>(Latent{leaf(1), leaf(2)}); });
  check_own<std::shared_ptr<const Latent>>([] {
    return std::make_shared<const Latent>(Latent{leaf(1), leaf(2)});
  });
  check_own<Single>([] { return Single(leaf(1)); });
}

BOOST_AUTO_TEST_CASE(packed_sequences) {
  namespace rnn = torch::nn::utils::rnn;
  const auto make = [] {
    return rnn::pack_padded_sequence(at::ones({4, 2, 3}).set_requires_grad(true), torch::tensor({2, 4}),
                                     /*batch_first=*/false, /*enforce_sorted=*/false);
  };
  const auto leafs = [&] {
    const auto packed = make();
    return Packed(packed.data().detach().set_requires_grad(true), packed.batch_sizes(),
                  packed.sorted_indices(), packed.unsorted_indices());
  };
  check_everywhere<Packed>(leafs);
  check_everywhere<std::tuple<Packed, at::Tensor>>([&] { return std::make_tuple(leafs(), leaf(3)); });
}

BOOST_AUTO_TEST_CASE(what_no_hook_replaces_stays_the_very_object) {
  auto latents = echo<std::shared_ptr<Latent>>();
  const auto a = hooks::attach(*latents, Kind::forward, [](Event&) {});
  const auto latent = std::make_shared<Latent>(Latent{leaf(1), leaf(2)});
  BOOST_TEST(latents->forward(latent) == latent);
  auto dicts = echo<Dict>();
  const auto b = hooks::attach(*dicts, Kind::forward, [](Event&) {});
  Dict dict;
  dict.insert("a", leaf(1));
  BOOST_TEST(dicts->forward(dict).is(dict));
}

namespace {

struct SumImpl : torch::nn::Module {
  at::Tensor forward(at::TensorList all) {
    at::Tensor sum = all[0];
    for (std::size_t i = 1; i < all.size(); ++i) sum = sum + all[i];
    return sum;
  }
};
TORCHTAP_MODULE(Sum);

struct PoolImpl : torch::nn::Module {
  at::TensorList forward(const at::Tensor& x) {
    kept = {x, x + 1};
    return kept;
  }
  Tensors kept;
};
TORCHTAP_MODULE(Pool);

}  // namespace

BOOST_AUTO_TEST_CASE(tensor_lists) {
  Sum own;
  torch::nn::AnyModule any(std::make_shared<SumImpl>());
  const auto check_list = [](auto attach, auto call) {
    const Tensors given{leaf(1), leaf(2), leaf(3)};
    Tensors seen;
    {
      const auto a = attach(Kind::forward_pre, [&](Event& e) {
        seen = seen_in(e.inputs());
        e.inputs()[1] = at::full({2}, 10);
      });
      BOOST_TEST(at::equal(call(given), at::full({2}, 14)));
    }
    BOOST_TEST(same(seen, given));
    BOOST_TEST(given[1][0].template item<double>() == 2, "the caller's array stays");
    std::set<std::int64_t> slots;
    const auto b = attach(Kind::backward_input, [&](Event& e) {
      slots.insert(e.slot());
      BOOST_TEST(at::equal(e.gradient(), at::ones({2})));
    });
    call(given).sum().backward();
    BOOST_TEST(slots == std::set<std::int64_t>({0, 1, 2}), boost::test_tools::per_element());
  };
  check_list([&](Kind kind, hooks::Callback callback) { return hooks::attach(*own, kind, callback); },
             [&](at::TensorList list) { return own(list); });
  check_list([&](Kind kind, hooks::Callback callback) { return hooks::attach(any, kind, callback); },
             [&](at::TensorList list) { return any.forward(list); });

  Pool pool;
  std::int64_t size = 0;
  const auto a = hooks::attach(*pool, Kind::forward_output, [&](Event& e) { size = e.outputs().size(); });
  BOOST_TEST(at::equal(pool(at::ones({2}))[1], at::full({2}, 2)));
  BOOST_TEST(size == 2);
  const auto b =
      hooks::attach(*pool, Kind::forward_output, [&](Event& e) { e.outputs()[0] = at::zeros({2}); });
  BOOST_TEST(contains(message_of<c10::Error>([&] { pool(at::ones({2})); }), "std::vector"));
}

namespace {

/// Returns its results in an argument.
struct FillImpl : torch::nn::Module {
  void forward(Latent& value) {
    value.deviation = value.mean * 3;
    value.mean.mul_(2);
  }
};
TORCHTAP_MODULE(Fill);
struct DoubleImpl : torch::nn::Module {
  void forward(at::Tensor& x, bool exchange) {
    if (exchange) {
      x = x * 2;
    } else {
      x.mul_(2);
    }
  }
};
TORCHTAP_MODULE(Double);
/// Appends intermediate results to the caller's vector.
struct CollectImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, Tensors& features) {
    at::Tensor y = x;
    for (int i = 0; i < 50; ++i) features.push_back(y = y + features[0]);
    return y;
  }
};
TORCHTAP_MODULE(Collect);

}  // namespace

BOOST_AUTO_TEST_CASE(results_in_arguments) {
  Fill fill;
  Tensors in, out;
  const auto a = hooks::attach(*fill, Kind::forward_pre, [&](Event& e) { in = seen_in(e.inputs()); });
  const auto b = hooks::attach(*fill, Kind::forward_output, [&](Event& e) {
    out = seen_in(e.outputs());
    e.outputs()[1] = e.outputs()[1] + 1;
  });
  Latent latent{at::ones({2}), at::Tensor()};
  const at::Tensor mean = latent.mean;
  fill->forward(latent);
  BOOST_TEST(in.size() == 2);
  BOOST_REQUIRE(out.size() == 2);
  BOOST_TEST(at::equal(out[1], at::full({2}, 3)));
  BOOST_TEST(latent.mean.is_same(mean));
  BOOST_TEST(at::equal(mean, at::full({2}, 2)));
  BOOST_TEST(at::equal(latent.deviation, at::full({2}, 4)), "what the hook put in its place");

  for (const bool exchange : {false, true}) {
    const auto run = [&](Double& module) {
      at::Tensor x = at::ones({2}).set_requires_grad(true);
      at::Tensor y = x + 0;
      module->forward(y, exchange);
      (y * 3).sum().backward();
      return Tensors{y.detach(), x.grad()};
    };
    Double doubled;
    const Tensors want = run(doubled);
    at::Tensor forward, input, output;
    const auto c = hooks::attach(*doubled, Kind::forward_output, [&](Event& e) { forward = e.outputs()[0]; });
    const auto d = hooks::attach(*doubled, Kind::backward_input, [&](Event& e) { input = e.gradient(); });
    const auto e = hooks::attach(*doubled, Kind::backward_output, [&](Event& e) { output = e.gradient(); });
    BOOST_TEST(support::identical(run(doubled), want));
    BOOST_TEST(at::equal(forward.detach(), at::full({2}, 2)));
    BOOST_REQUIRE(input.defined());
    BOOST_REQUIRE(output.defined());
    BOOST_TEST(at::equal(input, at::full({2}, 6)));
    BOOST_TEST(at::equal(output, at::full({2}, 3)));
  }
}

BOOST_AUTO_TEST_CASE(arguments_that_forward_writes_to) {
  Collect collect;
  const auto run = [&] {
    Tensors features{leaf(1)};
    const at::Tensor first = features[0];
    const at::Tensor x = leaf(2);
    const at::Tensor y = collect(x, features);
    BOOST_TEST(features.size() == 51);
    BOOST_TEST(features[0].is_same(first), "the caller's own tensor is where it was");
    y.sum().backward();
    return Tensors{y.detach(), x.grad(), first.grad()};
  };
  const Tensors want = run();
  std::map<std::int64_t, at::Tensor> gradients;
  auto a = hooks::attach(*collect, Kind::backward_input,
                         [&](Event& e) { gradients[e.slot()] = e.gradient().clone(); });
  BOOST_TEST(support::identical(run(), want));
  BOOST_TEST(at::equal(gradients[0], want[1]));
  BOOST_TEST(at::equal(gradients[1], want[2]));
  a.remove();
  const auto b =
      hooks::attach(*collect, Kind::forward_pre, [](Event& e) { e.inputs()[1] = at::full({2}, 10); });
  Tensors features{leaf(1)};
  const at::Tensor first = features[0];
  BOOST_TEST(at::equal(collect(at::zeros({2}), features), at::full({2}, 500)));
  BOOST_TEST(features[0].is_same(first));
}

namespace {

/// Keeps what it computes from the nodes.
struct Graph {
  std::vector<int> edges{0, 1};
  mutable at::Tensor norm;
};
struct NormaliseImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const Graph& graph) {
    if (!graph.norm.defined()) graph.norm = x.sum();
    return x / graph.norm;
  }
};
TORCHTAP_MODULE(Normalise);
/// Tells where its arguments are.
struct WhereImpl : torch::nn::Module {
  std::vector<const void*> forward(const at::Tensor& a, at::Tensor& b, at::Tensor&& c, const Tensors& d,
                                   Tensors& e, Tensors&& f, const std::shared_ptr<Latent>& g,
                                   const std::string& h, const Tensors&& i) {
    return {&a, &b, &c, &d, &e, &f, &g, &h, &i};
  }
};
TORCHTAP_MODULE(Where);
/// Takes what it is offered, or leaves it.
struct TakeImpl : torch::nn::Module {
  void forward(at::Tensor&& x, Tensors&& all, bool take) {
    if (!take) return;
    kept = std::move(all);
    kept.push_back(std::move(x));
  }
  Tensors kept;
};
TORCHTAP_MODULE(Take);
struct WeightedImpl : torch::nn::Module {
  at::Tensor forward(const Tensors& all, const Latent& latent, const std::pair<at::Tensor, Graph>& other) {
    return all[0] * latent.mean + all[1] * latent.deviation + other.first;
  }
};
TORCHTAP_MODULE(Weighted);

}  // namespace

BOOST_AUTO_TEST_CASE(arguments_are_the_callers_own) {
  const auto nothing = [](Event&) {};
  Normalise normalise;
  const auto a = hooks::attach(*normalise, Kind::forward_pre, nothing);
  const Graph graph;
  BOOST_TEST(at::equal(normalise(at::ones({2}), graph), at::full({2}, 0.5)));
  BOOST_TEST(at::equal(normalise(at::full({2}, 3), graph), at::full({2}, 1.5)));

  Where where;
  const auto b = hooks::attach(*where, Kind::forward, nothing);
  at::Tensor x = leaf(1), y = leaf(2), z = leaf(3);
  Tensors some{x}, more{y}, others{z};
  const auto latent = std::make_shared<Latent>(Latent{x, y});
  const std::string text;
  const std::vector<const void*> want{&x, &y, &z, &some, &more, &others, &latent, &text, &some};
  BOOST_TEST((where->forward(x, y, std::move(z), some, more, std::move(others), latent, text,
                             std::move(std::as_const(some))) == want));

  Take take;
  const auto c = hooks::attach(*take, Kind::forward, nothing);
  const auto d = hooks::attach(*take, Kind::backward_input, nothing);
  for (const bool taken : {false, true}) {
    at::Tensor offered = leaf(1);
    const at::Tensor same = offered;
    Tensors list{leaf(2)};
    take->forward(std::move(offered), std::move(list), taken);
    BOOST_TEST(offered.is_same(same) != taken);
    BOOST_TEST(list.empty() == taken);
  }
  BOOST_TEST(take->kept.size() == 2);
}

BOOST_AUTO_TEST_CASE(constant_arguments_are_copied_where_a_hook_replaces_a_tensor) {
  Weighted weighted;
  const Tensors all{leaf(1), leaf(2)}, before = all;
  const Latent latent{leaf(3), leaf(4)};
  const std::pair<at::Tensor, Graph> other{at::zeros({2}), {}};
  const auto run = [&] { return weighted(all, latent, other); };
  BOOST_TEST(at::equal(run(), at::full({2}, 11)));
  {
    const auto a = hooks::attach(*weighted, Kind::forward_pre, [](Event& e) {
      BOOST_TEST(e.inputs().size() == 5);
      e.inputs()[1] = at::full({2}, 10);
      e.inputs()[2] = at::full({2}, 5);
    });
    BOOST_TEST(at::equal(run(), at::full({2}, 45)));
    BOOST_TEST(same(all, before));
    BOOST_TEST(latent.mean[0].item<double>() == 3);
  }
  {
    std::map<std::int64_t, double> gradients;
    const auto a = hooks::attach(*weighted, Kind::backward_input,
                                 [&](Event& e) { gradients[e.slot()] = e.gradient()[0].item<double>(); });
    run().sum().backward();
    BOOST_TEST((gradients == std::map<std::int64_t, double>{{0, 3}, {1, 4}, {2, 1}, {3, 2}}));
  }
  // Nobody said where the tensors of a Graph are, nor that it can be copied.
  const auto a = hooks::attach(*weighted, Kind::forward_pre, [](Event& e) { e.inputs()[4] = at::ones({2}); });
  const std::string refused = message_of<c10::NotImplementedError>(run);
  BOOST_TEST(contains(refused, "Graph"), refused);
  BOOST_TEST(contains(refused, "(Weighted)"), refused);
  BOOST_TEST(at::equal(other.first, at::zeros({2})));
}

namespace {

struct ReadImpl : torch::nn::Module {
  at::Tensor forward(const Single& value) { return value.tensor * 2; }
};
TORCHTAP_MODULE(Read);

/// Containers that say that they can be copied, behind a pointer that is shared and in a view.
using Owned = std::vector<std::unique_ptr<Latent>>;
struct OwnersImpl : torch::nn::Module {
  at::Tensor forward(std::shared_ptr<Owned> owned, c10::ArrayRef<std::unique_ptr<Latent>> rest) {
    return owned->at(0)->mean + rest[0]->deviation;
  }
};
TORCHTAP_MODULE(Owners);

/// Takes one argument without tensors and one that may have some.
struct OddImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, Config& config, std::shared_ptr<Incomplete> /*incomplete*/,
                     const Base& base, std::set<int> /*set*/, std::map<int, std::string> /*names*/,
                     std::unordered_map<Key, std::pair<int, Key>, HashKey> /*keyed*/,
                     std::function<at::Tensor(at::Tensor)> activation, torch::nn::Linear linear,
                     const torch::nn::Module& /*module*/, std::unique_ptr<int>& /*pointer*/,
                     const char* /*text*/, at::IntArrayRef /*sizes*/, c10::Scalar scalar) {
    return activation(linear(x)) * config.scale * base.times() * scalar;
  }
};
TORCHTAP_MODULE(Odd);

struct MysteryImpl : torch::nn::Module {
  Unknown forward(const at::Tensor& x) { return {x, "x"}; }
};
TORCHTAP_MODULE(Mystery);

}  // namespace

BOOST_AUTO_TEST_CASE(constants_that_cannot_be_copied_are_read) {
  Read read;
  const Single single(leaf(4));
  {
    at::Tensor seen;
    const auto a = hooks::attach(*read, Kind::forward_pre, [&](Event& e) { seen = e.inputs()[0]; });
    read(single);
    BOOST_TEST(seen.is_same(single.tensor));
  }
  const auto b = hooks::attach(*read, Kind::forward_pre, [&](Event& e) { e.inputs()[0] = at::zeros({2}); });
  BOOST_TEST(contains(message_of<c10::Error>([&] { read(single); }), "values::Single"));
  BOOST_TEST(single.tensor[0].item<double>() == 4);

  Owners owners;
  const auto owned = std::make_shared<Owned>();
  owned->push_back(std::make_unique<Latent>(Latent{leaf(1), leaf(2)}));
  {
    Tensors seen;
    const auto a = hooks::attach(*owners, Kind::forward_pre, [&](Event& e) {
      for (int i = 0; i < e.inputs().size(); ++i) seen.push_back(e.inputs()[i]);
    });
    BOOST_TEST(at::equal(owners(owned, *owned), at::full({2}, 3)));
    const Latent& held = *owned->front();
    BOOST_TEST(same(seen, {held.mean, held.deviation, held.mean, held.deviation}));
  }
  for (const int slot : {0, 3}) {
    const auto c =
        hooks::attach(*owners, Kind::forward_pre, [&](Event& e) { e.inputs()[slot] = at::zeros({2}); });
    const std::string refused = message_of<c10::Error>([&] { owners(owned, *owned); });
    BOOST_TEST(contains(refused, "unique_ptr"), refused);
  }
}

BOOST_AUTO_TEST_CASE(types_without_tensors_and_types_that_are_unknown) {
  using hooks::detail::is_plain_v;
  static_assert(is_plain_v<int> && is_plain_v<std::string> && is_plain_v<c10::Scalar> &&
                is_plain_v<c10::Device> && is_plain_v<c10::ScalarType> && is_plain_v<at::Generator> &&
                is_plain_v<at::IntArrayRef> && is_plain_v<Config> && is_plain_v<torch::nn::Linear> &&
                is_plain_v<const char*> && is_plain_v<std::vector<bool>> &&
                is_plain_v<std::weak_ptr<Config>>);
  static_assert(!is_plain_v<at::Tensor> && !is_plain_v<at::TensorList> && !is_plain_v<Unknown> &&
                !is_plain_v<Latent> && !is_plain_v<std::reference_wrapper<at::Tensor>> &&
                !is_plain_v<const at::Tensor*> && !is_plain_v<Incomplete> && !is_plain_v<void*> &&
                !is_plain_v<c10::IValue>);

  Odd odd;
  Config config;
  std::unique_ptr<int> pointer;
  torch::nn::Linear linear(2, 2);
  const auto run = [&](const at::Tensor& x) {
    return odd->forward(
        x, config, nullptr, Twice(), {1, 2}, {{1, "one"}}, {}, [](at::Tensor y) { return y.tanh(); }, linear,
        *linear, pointer, "text", {1, 2}, 3);
  };
  const auto want = run(at::ones({1, 2}));
  std::int64_t size = 0;
  std::string unknown;
  const auto handle = hooks::attach(*odd, Kind::forward, [&](Event& e) {
    size = e.inputs().size();
    unknown = e.outputs().describe_unknown();
    BOOST_TEST(e.outputs().unknown().empty());
  });
  BOOST_TEST(support::identical(run(at::ones({1, 2})), want));
  BOOST_TEST(size == 1);
  BOOST_TEST(unknown.empty());

  Mystery mystery;
  std::string message;
  const auto other = hooks::attach(*mystery, Kind::forward_output, [&](Event& e) {
    message = message_of<c10::IndexError>([&] { e.outputs()[0].numel(); });
  });
  BOOST_TEST(mystery(at::ones({1})).tensor.defined());
  BOOST_TEST(contains(message, "torchtap::hooks::Visit<values::Unknown>"), message);
  BOOST_TEST(!contains(message, "register_value"), message);
}

BOOST_AUTO_TEST_SUITE_END()
