// Every module type of LibTorch in an otherwise plain program that is linked with torchtap::transparent,
// compared with a program that is not.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <set>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/transparent/transparent.hpp>

#include "tests/builtins/watch.hpp"

namespace hooks = torchtap::hooks;
using builtins::check_hooked;
using builtins::check_same;
using builtins::Made;
using builtins::run;
using builtins::Tensors;

namespace {

std::set<std::string>& checked_types() {
  static std::set<std::string> names;
  return names;
}

torch::serialize::InputArchive& plain_outcomes() {
  static auto archive = [] {
    torch::serialize::InputArchive read;
    read.load_from(TORCHTAP_TEST_OUTCOMES);
    return read;
  }();
  return archive;
}

/// A typical model with a LibTorch module inside.
template <class Holder>
struct AroundImpl : torch::nn::Module {
  explicit AroundImpl(Holder held) : inner(register_module("inner", std::move(held))) {}
  template <class... Args>
  auto forward(Args&&... args) {
    return inner(std::forward<Args>(args)...);
  }
  Holder inner;
};

template <class Holder, std::size_t... I, class Make>
Made inside(Make make, std::index_sequence<I...>) {
  at::manual_seed(1);
  auto around = std::make_shared<AroundImpl<Holder>>(make(static_cast<Holder*>(nullptr)));
  return {around, [around](Tensors& in) { return support::flat(around->forward(in[I]...)); }};
}

template <class Holder, std::size_t N, class Make>
void check_type(const std::string& name, Make make, const std::array<at::Tensor, N>& given) {
  BOOST_TEST_CONTEXT(name) {
    checked_types().insert(name);
    const Tensors inputs(given.begin(), given.end());
    constexpr auto kAll = std::make_index_sequence<N>();
    const auto want = builtins::read(plain_outcomes(), name);
    const auto bare = builtins::direct<Holder>(make, false, kAll);
    BOOST_TEST(torchtap::model::find(*bare.module, "").reachable());
    check_same(run(*bare.module, inputs, bare.forward), want);

    const std::size_t slots = builtins::slots_of(name, N);
    check_hooked("holder(x)", builtins::direct<Holder>(make, true, kAll), "", name, inputs, want, slots);
    check_hooked("holder->forward(x)", builtins::direct<Holder>(make, false, kAll), "", name, inputs, want,
                 slots);
    check_hooked("inside a module", inside<Holder>(make, kAll), "inner", name, inputs, want, slots);
    check_hooked("entry of a Sequential", builtins::entry<Holder>(make, kAll), "0", name, inputs, want,
                 slots);
    check_hooked("the Sequential around it", builtins::entry<Holder>(make, kAll), "", "Sequential", inputs,
                 want, slots);
  }
}

}  // namespace

#define CHECK_TYPE(Name, arguments, ...)                                                                 \
  check_type<torch::nn::Name>(                                                                           \
      #Name,                                                                                             \
      [](auto*) { return torch::nn::Name(std::make_shared<torch::nn::Name::ContainedType> arguments); }, \
      __VA_ARGS__)

#include "tests/builtins/table.hpp"

BOOST_AUTO_TEST_SUITE(builtin)

BOOST_AUTO_TEST_CASE(nothing_is_out_of_sight) {
  const auto problems = torchtap::transparent::check();
  BOOST_TEST(problems.empty(), (problems.empty() ? "" : problems.front()));
}

BOOST_AUTO_TEST_CASE(all_types_as_in_a_plain_program) {
  builtins::all();
  std::set<std::string> listed;
#define TORCHTAP_TEST_NAME(Name) listed.insert(#Name);
#define TORCHTAP_TEST_NAME_OF_TEMPLATE(Template, D, Name) TORCHTAP_TEST_NAME(Name)
  TORCHTAP_BUILTINS(TORCHTAP_TEST_NAME, TORCHTAP_TEST_NAME_OF_TEMPLATE)
#undef TORCHTAP_TEST_NAME
  BOOST_TEST(checked_types() == listed, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
