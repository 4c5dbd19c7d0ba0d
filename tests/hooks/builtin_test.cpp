// Every module type of LibTorch, as an entry of a Sequential and as a drop-in: hooks change nothing, and each
// fires once with the arguments and the result of the call.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>

#include "../builtins/watch.hpp"
#include "support.hpp"

namespace hooks = torchtap::hooks;
using builtins::check_hooked;
using builtins::direct;
using builtins::entry;
using builtins::Made;
using builtins::run;
using builtins::Tensors;

namespace {

std::set<std::string>& checked_types() {
  static std::set<std::string> names;
  return names;
}

template <class Plain, class DropIn, std::size_t N, class Make>
void check_type(const std::string& name, Make make, const std::array<at::Tensor, N>& given) {
  BOOST_TEST_CONTEXT(name) {
    checked_types().insert(name);
    const Tensors inputs(given.begin(), given.end());
    constexpr auto kAll = std::make_index_sequence<N>();

    const auto bare = direct<Plain>(make, false, kAll);
    const auto want = run(*bare.module, inputs, bare.forward, /*with_output_gradients=*/true);
    const auto text = [](const Made& made) { return c10::str(*made.module); };
    // Only MultiheadAttention passes its name to the virtual base Module, which only a most derived class can
    // do.
    if (name != "MultiheadAttention") BOOST_TEST(text(direct<DropIn>(make, true, kAll)) == text(bare));

    const std::size_t slots = builtins::slots_of(name, N);
    check_hooked("entry of a Sequential", entry<Plain>(make, kAll), "0", name, inputs, want, slots);
    check_hooked("the Sequential around it", entry<Plain>(make, kAll), "", "Sequential", inputs, want, slots);
    check_hooked("drop-in in a Sequential", entry<DropIn>(make, kAll), "0", name, inputs, want, slots);
    check_hooked("drop-in, holder(x)", direct<DropIn>(make, true, kAll), "", name, inputs, want, slots);
    check_hooked("drop-in, holder->forward(x)", direct<DropIn>(make, false, kAll), "", name, inputs, want,
                 slots);
  }
}

}  // namespace

// CHECK_TYPE(Linear, (4, 3), in(rand({2, 4}))): the constructor's arguments, then those of forward.
#define CHECK_TYPE(Name, arguments, ...)                                           \
  check_type<torch::nn::Name, torchtap::nn::Name>(                                 \
      #Name,                                                                       \
      [](auto* type) {                                                             \
        using Holder = std::remove_pointer_t<decltype(type)>;                      \
        return Holder(std::make_shared<typename Holder::ContainedType> arguments); \
      },                                                                           \
      __VA_ARGS__)

#include "../builtins/table.hpp"

BOOST_AUTO_TEST_SUITE(builtin)

BOOST_AUTO_TEST_CASE(layers) {
  builtins::layers();
}
BOOST_AUTO_TEST_CASE(activations) {
  builtins::activations();
}
BOOST_AUTO_TEST_CASE(normalisation_and_dropout) {
  builtins::normalisation_and_dropout();
}
BOOST_AUTO_TEST_CASE(padding_and_pooling) {
  builtins::padding_and_pooling();
}
BOOST_AUTO_TEST_CASE(losses) {
  builtins::losses();
}
BOOST_AUTO_TEST_CASE(recurrent) {
  builtins::recurrent();
}
BOOST_AUTO_TEST_CASE(attention) {
  builtins::attention();
}

// Runs after the others: they checked the whole list, and this checks that the list is all that LibTorch has.
BOOST_AUTO_TEST_CASE(the_list_is_complete,
                     *boost::unit_test::depends_on("builtin/layers") *
                         boost::unit_test::depends_on("builtin/activations") *
                         boost::unit_test::depends_on("builtin/normalisation_and_dropout") *
                         boost::unit_test::depends_on("builtin/padding_and_pooling") *
                         boost::unit_test::depends_on("builtin/losses") *
                         boost::unit_test::depends_on("builtin/recurrent") *
                         boost::unit_test::depends_on("builtin/attention")) {
  std::set<std::string> listed;
#define TORCHTAP_TEST_NAME(Name) listed.insert(#Name);
#define TORCHTAP_TEST_NAME_OF_TEMPLATE(Template, D, Name) TORCHTAP_TEST_NAME(Name)
  TORCHTAP_BUILTINS(TORCHTAP_TEST_NAME, TORCHTAP_TEST_NAME_OF_TEMPLATE)
#undef TORCHTAP_TEST_NAME
  BOOST_TEST(checked_types() == listed, boost::test_tools::per_element());

  // Plus the containers without a forward and the one container that needs no drop-in.
  std::set<std::string> known = listed;
  known.insert({"ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"});
  std::set<std::string> in_headers;
  const std::regex expression(R"(TORCH_MODULE\((\w+)\)|\nclass (\w+)\s*:\s*public torch::nn::ModuleHolder<)");
  for (const auto& file : std::filesystem::recursive_directory_iterator(TORCHTAP_TORCH_MODULES)) {
    if (file.path().extension() != ".h") continue;
    std::ifstream stream(file.path());
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match) {
      in_headers.insert((*match)[1].matched ? (*match)[1] : (*match)[2]);
    }
  }
  in_headers.erase("M");  // an example in a comment
  for (const auto& name : in_headers) BOOST_TEST(known.count(name) == 1, name << " is missing in the list");
  for (const auto& name : known) BOOST_TEST(in_headers.count(name) == 1, name << " is not in the headers");
}

BOOST_AUTO_TEST_SUITE_END()
