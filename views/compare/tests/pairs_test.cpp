// Calls and weights of two runs belong together as the programs say, whatever the names are.
#include <random>

#include <torchtap/views/compare/pairs.hpp>

#include "net.hpp"

using namespace torchtap_test;
using compare::How;
using compare::kNone;
using compare::Pairs;
using compare::Run;

namespace {

/// Pairs of paths, as "a=b", in the order of A; what has no partner is "a=".
std::vector<std::string> paths(const Run& a, const Run& b, const Pairs& pairs) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < pairs.of_a.size(); ++i) {
    const auto j = pairs.of_a[i];
    BOOST_TEST((j == kNone || pairs.of_b[j] == i));
    result.push_back(a.path(a.calls()[i]) + "=" + (j == kNone ? "" : b.path(b.calls()[j])));
  }
  return result;
}

std::vector<std::string> weights(const Run& a, const Run& b, const Pairs& pairs) {
  std::vector<std::string> result;
  for (const auto& pair : pairs.weights) {
    result.push_back((pair.a == kNone ? "" : a.path(a.records()[pair.a])) + "=" +
                     (pair.b == kNone ? "" : b.path(b.records()[pair.b])));
  }
  return result;
}

/// Whether every pair is what `spell` makes of a path of A.
void check(const std::vector<std::string>& pairs,
           const std::function<std::string(const std::string&)>& spell) {
  for (const auto& pair : pairs) {
    const std::string a = pair.substr(0, pair.find('='));
    BOOST_TEST(pair == a + "=" + spell(a));
  }
}

/// Other kernels, which round in another way.
struct WithoutMkldnn {
  WithoutMkldnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutMkldnn() { at::globalContext().setUserEnabledMkldnn(true); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(compare_pairs)

BOOST_AUTO_TEST_CASE(goes_by_path) {
  const Run a = run_of(Net().prints(images(), 2)), b = run_of(Net().prints(images(), 3));
  const Pairs pairs = compare::pair_up(a, b);
  check(paths(a, b, pairs), [](const std::string& path) { return path; });
  BOOST_TEST(pairs.count(How::path) == 34);
  BOOST_TEST(pairs.map.empty());
  for (std::size_t i = 0; i < a.calls().size(); ++i)
    BOOST_TEST(a.calls()[i].ordinal == b.calls()[pairs.of_a[i]].ordinal);
  BOOST_TEST(std::count(pairs.of_b.begin(), pairs.of_b.end(), kNone) == 17);  // the third forward
  check(weights(a, b, pairs), [](const std::string& name) { return name; });
}

BOOST_AUTO_TEST_CASE(threads_go_by_what_they_were_given_and_roots_by_being_one) {
  const auto threads = [](const std::vector<double>& inputs) {
    Prints prints;
    for (const double x : inputs) {
      prints.call("", "Net", at::full({2}, x), [](const at::Tensor& t) { return t + 1; });
      ++prints.thread;
    }
    return run_of(prints.bytes);
  };
  const Run a = threads({1, 2, 3}), b = threads({3, 1, 4});
  const Pairs pairs = compare::pair_up(a, b);
  const std::vector<std::uint32_t> expected = {1, 2, 0};
  BOOST_TEST(pairs.of_a == expected, boost::test_tools::per_element());

  // TorchScript shows its root alone, whose output is also the last module's.
  Prints eager, script;
  const auto x = at::rand({3});
  const auto inside = [&](const at::Tensor& t) {
    return eager.call("fc", "Linear", t.exp(), [](const at::Tensor& y) { return y + 1; });
  };
  eager.call("", "Net", x, inside);
  script.call("", "Net", x, [](const at::Tensor& t) { return t.exp() + 1; });
  const Run of_eager = run_of(eager.bytes), of_script = run_of(script.bytes);
  const std::vector<std::string> roots = {"=", "fc="};
  BOOST_TEST(paths(of_eager, of_script, compare::pair_up(of_eager, of_script)) == roots,
             boost::test_tools::per_element());
  BOOST_TEST(compare::pair_up(of_eager, of_script).of_a[0] == 0U);
  BOOST_TEST(compare::pair_up(of_script, of_eager).of_a[0] == 0U);
  // Frozen, it has no weights, and is called by its type.
  Prints frozen;
  frozen.call("Net", "Net", x, [](const at::Tensor& t) { return t.exp() + 1; });
  const Run of_frozen = run_of(frozen.bytes);
  BOOST_TEST(compare::pair_up(of_eager, of_frozen).of_a[0] == 0U);
}

BOOST_AUTO_TEST_CASE(learns_other_names_which_are_a_map) {
  Net net, other;
  other.blocks = "stages.";
  const Run a = run_of(net.prints(images(), 2));
  const WithoutMkldnn other_kernels;
  const Run b = run_of(other.prints(images(), 2));
  const auto spell = [&](std::string path) {
    return path.rfind("layer", 0) == 0 ? "stages." + path.substr(5) : path;
  };
  Pairs pairs = compare::pair_up(a, b);
  check(paths(a, b, pairs), spell);
  check(weights(a, b, pairs), spell);
  const std::vector<std::string> map = {"layer1.*=stages.1.*", "layer2.*=stages.2.*", "layer3.*=stages.3.*"};
  BOOST_TEST(pairs.map == map, boost::test_tools::per_element());
  BOOST_TEST(pairs.count(How::values) == 2 * 12);
  BOOST_TEST(pairs.count(How::parent) == 2 * 3);
  for (const auto& maps : {map, std::vector<std::string>{"layer*=stages.*"}}) {
    pairs = compare::pair_up(a, b, maps);
    check(paths(a, b, pairs), spell);
    BOOST_TEST(pairs.count(How::map) == 2 * 15);
  }
}

BOOST_AUTO_TEST_CASE(refuses_maps_that_name_nothing) {
  const Run a = run_of(Net().prints(images())), b = run_of(Net().prints(images()));
  const auto error = [&](const std::string& map) { return error_of([&] { compare::pair_up(a, b, {map}); }); };
  BOOST_TEST(contains(error("layer1"), "names no pair of modules; write A=B"));
  BOOST_TEST(contains(error("layer*=stage"), "have not as many asterisks"));
  BOOST_TEST(contains(error("leyer1.conv=layer1.conv"),
                      "has no module leyer1.conv that ran; near it are \"layer1.conv\""));
  BOOST_TEST(contains(error("layer1.*=stage1.*"), "has no module stage1"));
}

BOOST_AUTO_TEST_CASE(numbers_that_shift_go_by_values) {
  Net net, other;
  net.numbers = other.numbers = true;
  other.dropouts = false;
  const Run a = run_of(net.prints(images()));
  const WithoutMkldnn other_kernels;
  const Run b = run_of(other.prints(images()));
  const Pairs pairs = compare::pair_up(a, b);
  const auto spell = [](std::string path) -> std::string {
    if (!contains(path, ".") || path == "fc.weight" || path == "fc.bias" || path == "unused.weight")
      return path;
    char& number = path[7];  // of conv, drop, bn, relu
    if (number == '1') return "";
    if (number > '1') --number;
    return path;
  };
  check(paths(a, b, pairs), spell);
  check(weights(a, b, pairs), spell);
}

BOOST_AUTO_TEST_CASE(a_module_may_be_shared_on_one_side_and_a_function_on_the_other) {
  Net net, shared, without;
  shared.shared_relu = true;
  without.relus = without.dropouts = false;
  const Run a = run_of(net.prints(images())), b = run_of(shared.prints(images())),
            c = run_of(without.prints(images()));
  Pairs pairs = compare::pair_up(a, b);
  check(paths(a, b, pairs), [](const std::string& path) { return contains(path, ".relu") ? "relu" : path; });
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < a.calls().size(); ++i) {
    if (contains(a.path(a.calls()[i]), ".relu")) BOOST_TEST(b.calls()[pairs.of_a[i]].ordinal == last++);
  }
  pairs = compare::pair_up(a, c);
  check(paths(a, c, pairs), [](const std::string& path) {
    return contains(path, ".relu") || contains(path, ".drop") ? "" : path;
  });
}

BOOST_AUTO_TEST_CASE(names_may_have_nothing_in_common) {
  // Of a deep chain with random names and types on one side and a part of the activations missing.
  std::mt19937 random(3);
  const WithoutMkldnn same_kernels;
  const auto weights = at::randn({40, 16, 16}, at::make_generator<at::CPUGeneratorImpl>(1)) * 0.3;
  Prints a, b;
  auto x = at::randn({4, 16}, at::make_generator<at::CPUGeneratorImpl>(2)), y = x + 1e-7;
  std::map<std::string, std::string> partner;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "m" + std::to_string(i), other = "n" + std::to_string(random());
    const auto linear = [&](const at::Tensor& t) { return t.matmul(weights[i]); };
    x = a.call(name + ".linear", "Linear", x, linear);
    y = b.call(other, random() % 3 == 0 ? "Dense" : "Linear", y, linear);
    partner[name + ".linear"] = other;
    const auto tanh = [](const at::Tensor& t) { return t.tanh(); };
    x = a.call(name + ".tanh", "Tanh", x, tanh);
    x = a.call(name + ".drop", "Dropout", x, [](const at::Tensor& t) { return t; });
    if (random() % 2 == 0) {
      y = tanh(y);
    } else {
      y = b.call(other + "t", "Tanh", y, tanh);
      partner[name + ".tanh"] = other + "t";
    }
  }
  const Run of_a = run_of(a.bytes), of_b = run_of(b.bytes);
  check(paths(of_a, of_b, compare::pair_up(of_a, of_b)),
        [&](const std::string& path) { return partner[path]; });
}

BOOST_AUTO_TEST_CASE(aligns_more_than_fits_in_a_table) {
  // 5000 calls with other names, of which B lacks some: digests that occur once divide them.
  Prints a, b;
  std::map<std::string, std::string> partner;
  for (int i = 0; i < 5000; ++i) {
    const auto value = [&](const at::Tensor& t) { return t + i; };
    const auto one = at::ones({2});
    const std::string name = std::to_string(i);
    a.call("a" + name, "Add", one, value);
    if (i % 7 == 3) continue;
    b.call("b" + name, "Add", one, value);
    partner["a" + name] = "b" + name;
  }
  const Run of_a = run_of(a.bytes), of_b = run_of(b.bytes);
  check(paths(of_a, of_b, compare::pair_up(of_a, of_b)),
        [&](const std::string& path) { return partner[path]; });
}

BOOST_AUTO_TEST_CASE(threads_and_ranks_go_by_order) {
  const auto both = [](std::vector<std::uint32_t> threads) {
    Prints prints;
    for (const auto thread : threads) {
      prints.thread = thread, prints.rank = thread / 4;
      prints.call("m", "M", at::full({2}, 1.0 + static_cast<double>(&thread - threads.data())),
                  [](const at::Tensor& t) { return t; });
    }
    return prints.bytes;
  };
  const Run a = run_of(both({2, 0, 5})), b = run_of(both({1, 7, 3, 6}));
  const Pairs pairs = compare::pair_up(a, b);
  std::vector<std::string> seen;
  for (std::size_t i = 0; i < pairs.of_a.size(); ++i) {
    const auto thread = [](const Run& run, std::uint32_t call) {
      return run.sequences()[run.calls()[call].sequence].thread;
    };
    seen.push_back(c10::str(thread(a, static_cast<std::uint32_t>(i)), "=", thread(b, pairs.of_a[i])));
  }
  const std::vector<std::string> expected = {"2=1", "0=3", "5=7"};
  BOOST_TEST(seen == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(weights_go_by_values_where_names_say_nothing) {
  Prints a, b;
  const auto w = at::rand({4, 6}), v = at::rand({5}), u = at::rand({7, 2});
  a.weight("one", "", w), a.weight("two", "", v), a.weight("three", "", u),
      a.weight("four", "", at::rand({9}));
  b.weight("x", "", at::rand({7, 2})), b.weight("y", "", v), b.weight("z", "", w.t()),
      b.weight("w", "", at::rand({3}));
  const Run of_a = run_of(a.bytes), of_b = run_of(b.bytes);
  const std::vector<std::string> expected = {"one=z", "two=y", "three=x", "four=", "=w"};
  BOOST_TEST(weights(of_a, of_b, compare::pair_up(of_a, of_b)) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
