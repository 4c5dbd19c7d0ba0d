// Which forms of user-defined modules are followed, and which reason is given for the others.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <any>
#include <functional>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/recording.hpp>

#include "tests/hooks/support.hpp"
#include "tests/support.hpp"

namespace hooks = torchtap::hooks;
using hooks::Event;
using hooks::Kind;
using support::contains;
using support::message_of;
using T = at::Tensor;

namespace {

// clang-format off
struct VirtualImpl : torch::nn::Module { virtual T forward(T x, double k = 2) { return x * k; } };
TORCH_MODULE(Virtual);
struct OverridingImpl : VirtualImpl { T forward(T x, double k = 5) override { return x * k + 100; } };
TORCH_MODULE(Overriding);
struct FinalForwardImpl : VirtualImpl { T forward(T x, double k = 3) final { return x * k + 7; } };
TORCH_MODULE(FinalForward);
struct Callable { virtual ~Callable() = default; virtual T forward(T x) = 0; };
struct InterfacedImpl : torch::nn::Module, Callable { T forward(T x) override { return x + 2; } };
TORCH_MODULE(Interfaced);
struct HelpersImpl : torch::nn::Module { std::vector<std::unique_ptr<int>> helpers; T forward(T x) { return x + 1; } };
TORCH_MODULE(Helpers);
struct ConstImpl : torch::nn::Module { T forward(const T& x) const { return x * 3; } };
TORCH_MODULE(Const);
struct LvalueImpl : torch::nn::Module { T forward(T x) & { return x + 1; } };
TORCH_MODULE(Lvalue);
struct LaterImpl;
TORCH_MODULE(Later);
struct LaterImpl : torch::nn::Module { Later next{nullptr}; T forward(T x) { return next.is_empty() ? x : next->forward(x) + 1; } };
template <class Unit> struct GridImpl : torch::nn::Module {
  Unit unit; GridImpl() { this->register_module("unit", unit); } T forward(T x) { return unit(x) * 2; }
};
template <class Unit = Const> struct Grid : torch::nn::ModuleHolder<GridImpl<Unit>> { using torch::nn::ModuleHolder<GridImpl<Unit>>::ModuleHolder; };
struct CopiedImpl : torch::nn::Cloneable<CopiedImpl> {
  CopiedImpl() { CopiedImpl::reset(); } void reset() override { inner = register_module("inner", Const()); }
  Const inner{nullptr}; T forward(T x) { return inner(x); }
};
TORCH_MODULE(Copied);

struct DeferredImpl : torch::nn::Module {
  std::function<T()> forward(const T& x) { return [&x] { return x + 1; }; }
};
TORCH_MODULE(Deferred);
struct AnythingImpl : torch::nn::Module { T forward(std::any x) { return std::any_cast<T>(x) + 1; } };
TORCH_MODULE(Anything);
struct OwnedImpl : torch::nn::Module { T forward(T x, const std::vector<std::unique_ptr<int>>& n) { return x + *n.at(0); } };
TORCH_MODULE(Owned);
struct Needed { int n; explicit Needed(int n) : n(n) {} };
template <class N> struct DefaultedImpl : torch::nn::Module { T forward(T x, N n = N()) { return x + n.n; } };
using Defaulted = torch::nn::ModuleHolder<DefaultedImpl<Needed>>;

struct FinalImpl final : torch::nn::Module { T forward(T x) { return x; } };
TORCH_MODULE(Final);
struct OverloadedImpl : torch::nn::Module { T forward(T x) { return x; } T forward(T x, T y) { return x + y; } };
TORCH_MODULE(Overloaded);
struct TemplateImpl : torch::nn::Module { template <class U> T forward(T x, U u) { return x * u; } };
TORCH_MODULE(Template);
struct StaticImpl : torch::nn::Module { static T forward(T x) { return x; } };
TORCH_MODULE(Static);
struct ReferenceImpl : torch::nn::Module { T kept; T& forward(T x) { return kept = x; } };
TORCH_MODULE(Reference);
struct NoexceptImpl : torch::nn::Module { T forward(T x) noexcept { return x; } };
TORCH_MODULE(Noexcept);
struct RvalueImpl : torch::nn::Module { T forward(T x) && { return x; } };
TORCH_MODULE(Rvalue);
struct Fixed { Fixed() = default; Fixed(const Fixed&) = delete; };
struct ImmovableImpl : torch::nn::Module { T forward(Fixed&&) { return {}; } };
TORCH_MODULE(Immovable);
struct CoderImpl : torch::nn::Module {
  torch::nn::Linear code{2, 2}; CoderImpl() { register_module("code", code); } T encode(T x) { return code(x); }
};
TORCH_MODULE(Coder);

struct StackImpl : torch::nn::SequentialImpl { using SequentialImpl::SequentialImpl; T forward(T x) { return SequentialImpl::forward(x) * 2; } };
TORCH_MODULE(Stack);
struct RenamedStackImpl : torch::nn::SequentialImpl { using SequentialImpl::SequentialImpl; };
TORCH_MODULE(RenamedStack);
/// Its copy constructor does not compile.
template <class V> struct Box { V value; explicit Box(V v) : value(v) {} Box(const Box& other) : value(other.value->copy()) {} };
struct BoxingImpl : torch::nn::Module { Box<T> forward(T x) { return Box<T>(x + 1); } };
TORCH_MODULE(Boxing);
struct UnboxingImpl : torch::nn::Module { T forward(Box<T> x) { return x.value + 2; } };
TORCH_MODULE(Unboxing);
struct Moved { int moves = 0; Moved() = default; Moved(Moved&& other) : moves(other.moves + 1) {} };
struct MovingImpl : torch::nn::Module { T forward(Moved moved) { return at::full({1}, moved.moves); } };
TORCH_MODULE(Moving);

/// A root that only contains networks, as trainers do. No holder is ever made for it.
struct Trainer : torch::nn::Module {
  Const generator; Coder discriminator;
  Trainer() { register_module("generator", generator); register_module("discriminator", discriminator); }
};
// clang-format on

/// The tensors that the module's hook sees in one call.
template <class Holder, class Call>
std::vector<double> seen(const Holder& module, Call&& call) {
  std::vector<double> values;
  const auto handle = hooks::attach(*module.ptr(), Kind::forward_output, [&](Event& event) {
    values.push_back(event.outputs()[0].template item<double>());
  });
  call();
  return values;
}

template <class Holder>
std::string why_not(const Holder& module) {
  return message_of<c10::ValueError>(
      [&] { hooks::attach(*module.ptr(), Kind::forward_output, [](Event&) {}).remove(); });
}

template <class M>
std::string taken(M& /*module*/) {
  return "the template";
}
std::string taken(VirtualImpl& /*module*/) {
  return "VirtualImpl";
}

/// Its attention computes with `out_proj` and does not call it; `other` is called.
struct AttendingImpl : torch::nn::Module {
  torch::nn::MultiheadAttention attention{4, 2};
  torch::nn::Linear other{4, 4};
  explicit AttendingImpl(bool shared = false) {
    register_module("attention", attention);
    register_module("other", shared ? other = attention->out_proj : other);
  }
  T forward(T x) { return other(std::get<0>(attention(x, x, x))); }
};
TORCH_MODULE(Attending);

const auto x = at::ones({1});
using Values = std::vector<double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(forms)

BOOST_AUTO_TEST_CASE(virtual_forwards_run_the_objects_own) {
  Overriding overriding;
  Virtual base(std::shared_ptr<VirtualImpl>(overriding.ptr()));
  BOOST_TEST(base->forward(x).item<double>() == 102);  // the static type's default argument, as in C++
  BOOST_TEST(overriding->forward(x).item<double>() == 105);
  const auto values = seen(overriding, [&] {
    BOOST_TEST(base->forward(x).item<double>() == 102);
    BOOST_TEST(base(x, 3).item<double>() == 103);
    BOOST_TEST(overriding->forward(x).item<double>() == 105);
    BOOST_TEST(static_cast<torch::nn::Module&>(*base).as<Virtual>()->forward(x).item<double>() == 102);
  });
  BOOST_TEST(values == (Values{102, 103, 105, 102}), boost::test_tools::per_element());
  FinalForward last;
  BOOST_TEST(seen(last, [&] { last->forward(x); }) == Values{10}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(forms_that_are_followed) {
  Helpers helpers;
  BOOST_TEST(seen(helpers, [&] { helpers->forward(x); }) == Values{2}, boost::test_tools::per_element());
  const Const constant;
  BOOST_TEST(seen(constant, [&] { constant->forward(x); }) == Values{3}, boost::test_tools::per_element());
  Lvalue lvalue;
  BOOST_TEST(seen(lvalue, [&] { lvalue->forward(x); }) == Values{2}, boost::test_tools::per_element());
  Noexcept quiet;
  BOOST_TEST(seen(quiet, [&] { quiet->forward(x); }) == Values{1}, boost::test_tools::per_element());
  {
    const auto handle =
        hooks::attach(*quiet, Kind::forward_output, [](Event&) { throw std::runtime_error("a hook"); });
    BOOST_CHECK_THROW(quiet->forward(x), std::runtime_error);
  }
  Later later;
  later->next = Later();
  BOOST_TEST(seen(later, [&] { later->forward(x); }) == Values{2}, boost::test_tools::per_element());
  BOOST_TEST(seen(later->next, [&] { later->forward(x); }) == Values{1}, boost::test_tools::per_element());
  Grid<> grid;
  BOOST_TEST(seen(grid, [&] { grid->forward(x), grid(x); }) == (Values{6, 6}),
             boost::test_tools::per_element());
  BOOST_TEST(seen(grid->unit, [&] { grid->forward(x); }) == Values{3}, boost::test_tools::per_element());
  torch::nn::ModuleHolder<HelpersImpl> bare;
  BOOST_TEST(seen(bare, [&] { bare->forward(x); }) == Values{2}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(arguments_that_forms_keep) {
  const auto nothing = [](Event&) {};
  Deferred deferred;
  const auto handle = hooks::attach(*deferred.ptr(), Kind::forward, nothing);
  BOOST_TEST(deferred->forward(x)().item<double>() == 2);
  Anything anything;
  BOOST_TEST(seen(anything, [&] { anything->forward(x); }) == Values{2}, boost::test_tools::per_element());
  Owned owned;
  std::vector<std::unique_ptr<int>> numbers;
  numbers.push_back(std::make_unique<int>(5));
  BOOST_TEST(seen(owned, [&] { owned->forward(x, numbers); }) == Values{6}, boost::test_tools::per_element());
  Defaulted defaulted;
  BOOST_TEST(seen(defaulted, [&] { defaulted->forward(x, Needed(3)); }) == Values{4},
             boost::test_tools::per_element());
}

// What cannot be hidden: as<Holder>() and -> lead to another type, from which nothing can be made.
BOOST_AUTO_TEST_CASE(sequentials_of_the_users_own_fire_once) {
  const Helpers one, two;
  Stack stack(one, two);  // (x + 1 + 1) * 2
  torch::nn::Sequential outer(stack);
  RenamedStack renamed(stack, Helpers());
  BOOST_TEST(seen(stack, [&] { stack->forward(x), stack(x); }) == (Values{6, 6}));
  BOOST_TEST(seen(stack, [&] { outer->forward(x); }) == (Values{6}));
  BOOST_TEST(seen(renamed, [&] { renamed->forward(x); }) == (Values{7}));
  torchtap::recorders::ForwardOutput first, second;
  first.attach(stack);
  second.attach(outer);
  outer->forward(x);
  BOOST_TEST(first.at("").samples() == 1);
  BOOST_TEST(second.at("0").samples() == 1);
  BOOST_TEST(second.at("0.0").samples() == 1);
}

BOOST_AUTO_TEST_CASE(modules_behind_any_module) {
  Helpers module;
  const auto handle = hooks::attach(*module.ptr(), Kind::forward_output,
                                    [](Event& event) { event.outputs()[0] = event.outputs()[0] + 1; });
  torch::nn::AnyModule any(module), copy = any;
  std::vector<torch::nn::AnyModule> several;
  several.emplace_back(module);
  torch::nn::Sequential made_later(module, Helpers());
  for (auto* one : {&any, &copy, &several[0]}) BOOST_TEST(one->forward(x).item<double>() == 3);
  BOOST_TEST(made_later->forward(x).item<double>() == 4);
  BOOST_TEST(seen(module, [&] { any.forward(x), made_later->forward(x), copy.forward(x); }).size() == 3);
  torchtap::recorders::ForwardOutput outputs;
  outputs.attach(made_later);
  made_later->forward(x);
  any.forward(x);
  BOOST_TEST(outputs.at("0").samples() == 2);
  BOOST_TEST(outputs.at("").samples() == 1);

  // Behind a holder of the base's type.
  Overriding overriding;
  torch::nn::AnyModule base(std::shared_ptr<VirtualImpl>(overriding.ptr()));
  BOOST_TEST(seen(overriding, [&] { base.forward(x, 2.); }) == (Values{102}));
}

BOOST_AUTO_TEST_CASE(values_that_are_not_copied) {
  Boxing boxing;
  Unboxing unboxing;
  BOOST_TEST(boxing->forward(x).value.item<double>() == 2);
  BOOST_TEST(unboxing->forward(Box<T>(x)).item<double>() == 3);
  BOOST_TEST(contains(why_not(boxing), "no move constructor"));
  BOOST_TEST(contains(why_not(unboxing), "no move constructor"));
  Moving moving;
  BOOST_TEST(moving->forward(Moved()).item<double>() == 1);
  BOOST_TEST(seen(moving, [&] { moving->forward(Moved()); }) == (Values{1}));
}

BOOST_AUTO_TEST_CASE(views) {
  using View = std::remove_pointer_t<decltype(std::declval<torch::nn::Module&>().as<Virtual>())>;
  static_assert(std::is_base_of_v<VirtualImpl, View> && sizeof(View) == sizeof(VirtualImpl));
  static_assert(!std::is_copy_constructible_v<View> && !std::is_default_constructible_v<View> &&
                !std::is_copy_assignable_v<View>);
  static_assert(std::is_same_v<decltype(std::declval<torch::nn::Module&>().as<VirtualImpl>()), VirtualImpl*>);
  Overriding overriding;
  BOOST_TEST(dynamic_cast<OverridingImpl*>(overriding->as<Virtual>()) == overriding.get());
  BOOST_TEST(dynamic_cast<OverridingImpl*>(Virtual()->as<Virtual>()) == nullptr);
  // A limit that extras/transparent/README.md tells, and transparent_programs/exact.cpp measures.
  BOOST_TEST(taken(*overriding->as<Virtual>()) == "the template");
  BOOST_TEST(taken(*Virtual().operator->()) == "the template");
  Virtual module;
  BOOST_TEST(taken(*module) == "VirtualImpl");
  BOOST_TEST(taken(*module.get()) == "VirtualImpl");
  BOOST_TEST(taken(*module->as<VirtualImpl>()) == "VirtualImpl");
}

BOOST_AUTO_TEST_CASE(calls_that_may_not_have_been_seen_are_told) {
  const torchtap_test::TemporaryDirectory folder;
  Virtual module, quiet;
  torchtap::recorders::ForwardOutput outputs;
  outputs.modules(*module).modules(*quiet);
  const auto note_in = [&](const std::string& name) {
    outputs.save(folder / name, torchtap::storage::SaveOptions().mkdir(true));
    return torchtap::storage::load(folder / name).at(0).note();
  };
  const std::string not_called = "it was not called, or through an interface";
  BOOST_TEST(contains(outputs[0].note(), not_called), outputs[0].note());
  BOOST_TEST(note_in("before") == outputs[0].note());
  const torch::nn::Module& plain = *module;
  BOOST_TEST(plain.as<Overriding>() == nullptr);
  BOOST_TEST(plain.as<Virtual>() != nullptr);
  BOOST_TEST(contains(outputs[0].note(), not_called), outputs[0].note());
  static_cast<torch::nn::Module&>(*module).as<VirtualImpl>()->forward(x);
  BOOST_TEST(outputs[0].samples() == 0);
  BOOST_TEST(contains(outputs[0].note(), "as<Impl>()"), outputs[0].note());
  BOOST_TEST(contains(outputs[1].note(), not_called), outputs[1].note());
  BOOST_TEST(note_in("between") == outputs[0].note());
  const auto refused = message_of<c10::ValueError>([&] { outputs[0].tensor(); });
  BOOST_TEST(contains(refused, "as<Impl>()"), refused);
  {  // the spool closes with its recorder, and a later one goes on
    for (const bool append : {false, true}) {
      torchtap::recorders::ForwardOutput spooled(torchtap::recorders::RecorderOptions().spool(
          folder / "spool", torchtap::storage::SpoolOptions().mkdir(true).append(append)));
      spooled.modules(*module).modules(*quiet);
      BOOST_REQUIRE(spooled[0].note() == outputs[0].note());
    }
    const auto recording = torchtap::storage::load(folder / "spool");
    BOOST_TEST(recording.at(0).note() == outputs[0].note());
    BOOST_TEST(contains(recording.at(1).note(), not_called));
  }
  torchtap::recorders::ForwardOutput spooled(torchtap::recorders::RecorderOptions().spool(
      folder / "spool", torchtap::storage::SpoolOptions().append(true)));
  spooled.modules(*module);
  const auto note_in_spool = [&] {
    spooled.save(folder / "spool");
    return torchtap::storage::load(folder / "spool").at(0).note();
  };
  BOOST_TEST(note_in_spool() == outputs[0].note());
  module->forward(x);
  BOOST_TEST(outputs[0].samples() == 1);
  BOOST_TEST(outputs[0].note().empty());
  BOOST_TEST(note_in("after").empty());
  BOOST_TEST(note_in_spool().empty());
}

BOOST_AUTO_TEST_CASE(calls_through_an_interface_may_be_missing_and_this_is_told) {
  Interfaced module;
  torchtap::recorders::ForwardOutput outputs;
  outputs.modules(*module);
  Callable& plain = *module;
  plain.forward(at::ones({2}));
  BOOST_TEST(outputs[0].events() == 0);
  BOOST_TEST(contains(outputs[0].note(), "through an interface, a base class or ptr<Impl>()"),
             outputs[0].note());
  module->forward(at::ones({2}));
  BOOST_TEST(outputs[0].events() == 1);
  BOOST_TEST(outputs[0].note().empty());
}

BOOST_AUTO_TEST_CASE(what_attention_uses_without_a_call) {
  const auto input = at::ones({3, 1, 4});
  Attending model;
  torchtap::recorders::ForwardOutput outputs;
  outputs.modules(*model);
  BOOST_TEST(outputs.size() == 3);  // not attention.out_proj
  const auto out = model->forward(input);
  for (const auto& output : outputs) BOOST_TEST(output.samples() == 1, output.path());
  BOOST_TEST(at::equal(outputs.at("other").tensors().at(0), out));
  const auto projection = torchtap::model::find(*model, "attention.out_proj");
  BOOST_TEST(!projection.has_forward());
  const auto refused = message_of<c10::ValueError>(
      [&] { hooks::attach(projection, Kind::forward_output, [](Event&) {}).remove(); });
  BOOST_TEST(contains(refused, "used without a call"), refused);
  BOOST_TEST(message_of<c10::ValueError>([&] {
               outputs.modules(*model, torchtap::selectors::names("attention.out_proj"));
             }) != "(nothing was thrown)");
  // Where the same module is registered for a call of its own, too, it is seen.
  Attending shared(true);
  torchtap::recorders::ForwardOutput both;
  both.modules(*shared, torchtap::selectors::names("other"));
  shared->forward(input);
  BOOST_TEST(both[0].samples() == 1);
}

BOOST_AUTO_TEST_CASE(attaching_to_many_says_how_many_cannot_be_reached) {
  struct ManyImpl : torch::nn::Module {
    ManyImpl() {
      register_module("good", Const());
      register_module("made", std::make_shared<HelpersImpl>());
      register_module("last", Final());
      for (int i = 0; i < 5; ++i) register_module(c10::str("more", i), Overloaded());
    }
  };
  const auto model = std::make_shared<ManyImpl>();
  torchtap::recorders::ForwardOutput outputs;
  const auto refused =
      message_of<c10::ValueError>([&] { outputs.modules(*model, torchtap::selectors::depth(1)); });
  for (const char* part :
       {"\"made\" (Helpers) cannot be reached, and selectors::reachable() leaves it out: its holder did not "
        "make it",
        "1 of the 8 modules can", "\"last\" (Final), its class is final",
        "\"more0\" (Overloaded), its forward is overloaded", "and 2 more", "selectors::reachable()"}) {
    BOOST_TEST(contains(refused, part), part << " is not in: " << refused);
  }
  BOOST_TEST(outputs.empty());
  outputs.modules(*model, torchtap::selectors::reachable());
  BOOST_TEST(outputs.size() == 1);
}

BOOST_AUTO_TEST_CASE(objects_are_what_libtorch_would_have_made) {
  Virtual module;
  const auto& held = *module;
  BOOST_TEST((typeid(held) == typeid(VirtualImpl)));
  BOOST_TEST(module->name() == "(anonymous namespace)::VirtualImpl");
  static_assert(std::is_same_v<decltype(*module), VirtualImpl&>);
  auto copy = *module;
  BOOST_TEST((typeid(copy) == typeid(VirtualImpl)));
  Copied copied;
  const auto clone = std::dynamic_pointer_cast<CopiedImpl>(copied->clone());
  const auto& cloned = *clone;
  BOOST_TEST((typeid(cloned) == typeid(CopiedImpl)));
  Copied second(clone);
  BOOST_TEST(seen(second, [&] { second(x), copied(x); }) == Values{3}, boost::test_tools::per_element());
  // Calls of a module that no holder made cannot be seen, nor can calls of its clone.
  Copied third(std::dynamic_pointer_cast<CopiedImpl>(Copied(std::make_shared<CopiedImpl>())->clone()));
  BOOST_TEST(contains(why_not(third), "std::make_shared"), why_not(third));
}

BOOST_AUTO_TEST_CASE(the_reason_is_told_for_the_others) {
  BOOST_TEST(contains(why_not(Final()), "final"), why_not(Final()));
  BOOST_TEST(contains(why_not(Overloaded()), "overloaded"), why_not(Overloaded()));
  BOOST_TEST(contains(why_not(Template()), "template"), why_not(Template()));
  BOOST_TEST(contains(why_not(Static()), "static"), why_not(Static()));
  BOOST_TEST(contains(why_not(Reference()), "returns a reference"), why_not(Reference()));
  BOOST_TEST(contains(why_not(Rvalue()), "&&"), why_not(Rvalue()));
  BOOST_TEST(contains(why_not(Immovable()), "neither copied nor moved"), why_not(Immovable()));
  BOOST_TEST(contains(why_not(Coder()), "has no forward"), why_not(Coder()));
  BOOST_TEST(contains(why_not(Helpers(std::make_shared<HelpersImpl>())), "std::make_shared"));
}

BOOST_AUTO_TEST_CASE(a_root_without_forward_is_left_out) {
  auto trainer = std::make_shared<Trainer>();
  torchtap::recorders::ForwardOutput outputs;
  outputs.modules(*trainer);
  BOOST_TEST(outputs.size() == 2);
  trainer->generator(x);
  trainer->discriminator->encode(at::ones({1, 2}));
  BOOST_TEST(outputs.at("generator").samples() == 1);
  BOOST_TEST(outputs.at("discriminator.code").samples() == 1);
  torch::nn::Module& plain = *trainer;  // known from then on
  BOOST_TEST(!torchtap::model::walk_modules(plain).front().has_forward());
}

BOOST_AUTO_TEST_SUITE_END()
