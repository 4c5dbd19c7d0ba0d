// The first difference is where the fault is, and rounding is none.
#include <algorithm>
#include <cmath>
#include <random>

#include <torchtap/views/compare/verdict.hpp>

#include "net.hpp"

using namespace torchtap_test;
using compare::Divergence;
using compare::Run;
using compare::Thresholds;
using compare::Verdict;

namespace {

Verdict judged(const std::string& a, const std::string& b, const Thresholds& thresholds = {}) {
  const Run of_a = run_of(a), of_b = run_of(b);
  return compare::judge(of_a, of_b, compare::pair_up(of_a, of_b), thresholds);
}

/// Runs a net with the same kernels, or with others that round in another way.
std::string prints(const Net& net, bool other_kernels, const at::Tensor& x = images()) {
  at::globalContext().setUserEnabledMkldnn(!other_kernels);
  std::string bytes = net.prints(x);
  at::globalContext().setUserEnabledMkldnn(true);
  return bytes;
}

/// The first finding of a changed net against the unchanged one, with both kinds of kernels.
std::vector<Divergence> found(const std::function<void(Net&)>& change, const at::Tensor& x = images()) {
  Net net;
  change(net);
  const std::string reference = prints({}, false);
  std::vector<Divergence> result;
  for (const bool other : {false, true}) {
    const auto verdict = judged(reference, prints(net, other, x));
    BOOST_TEST_REQUIRE(!verdict.agree());
    result.push_back(verdict.suspects.front());
  }
  return result;
}

void check(const std::string& what, const std::string& expected, const std::string& cause,
           const std::function<void(Net&)>& change, const at::Tensor& x = images()) {
  BOOST_TEST_CONTEXT(what) {
    for (const Divergence& finding : found(change, x)) {
      BOOST_TEST(name_of(finding.kind) + " " + finding.path == expected);
      BOOST_TEST(contains(finding.cause, cause), finding.cause);
    }
  }
}

void replace(Net& net, const std::string& name, const std::function<at::Tensor(const at::Tensor&)>& by) {
  net.weights[name] = by(net.weights.at(name).clone()).contiguous();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(compare_verdict)

BOOST_AUTO_TEST_CASE(rounding_is_no_difference) {
  const std::string reference = prints({}, false);
  Verdict verdict = judged(reference, reference);
  BOOST_TEST(verdict.agree());
  BOOST_TEST(!verdict.first_bits.has_value());
  BOOST_TEST(verdict.compared == 34);
  BOOST_TEST(verdict.rows.size() == 17U);
  BOOST_TEST(verdict.weights.size() == Net().names.size());
  BOOST_TEST(verdict.largest_error == 0);

  verdict = judged(reference, prints({}, true));
  BOOST_TEST(verdict.agree());
  BOOST_TEST_REQUIRE(verdict.first_bits.has_value());
  BOOST_TEST(verdict.first_bits->path == "layer1.conv");
  BOOST_TEST(verdict.largest_error > 0);
  BOOST_TEST(verdict.largest_error < 1e-5);
  verdict = judged(reference, prints({}, true), Thresholds{16, 4, true});
  BOOST_TEST_REQUIRE(!verdict.agree());
  BOOST_TEST(verdict.suspects.front().path == "layer1.conv");

  Net net;
  for (const auto dtype : {at::kDouble, at::kBFloat16}) {
    net.dtype = dtype;
    verdict = judged(reference, prints(net, false));
    BOOST_TEST(verdict.agree());
    BOOST_TEST(verdict.largest_error > 0);
  }
  // Other names, fewer modules.
  net = Net();
  net.blocks = "stage", net.dropouts = net.relus = false;
  verdict = judged(reference, prints(net, true));
  BOOST_TEST(verdict.agree());
  BOOST_TEST(verdict.only_a.size() == 6U);
  BOOST_TEST(verdict.rows.size() == 11U);
}

BOOST_AUTO_TEST_CASE(errors_are_as_computed_from_the_tensors) {
  const auto change = [](Net& net) { net.eps["layer2.bn"] = 1e-2; };
  const auto finding = found(change)[0];
  // The same by hand, of 2304 elements.
  at::Tensor outputs[2];
  for (int i = 0; i < 2; ++i) {
    Net net;
    if (i == 1) change(net);
    net.faults["layer2.bn"] = [&](const at::Tensor& t) { return outputs[i] = t; };
    net.prints(images());
  }
  const double error = ((outputs[0] - outputs[1]).norm() / outputs[0].norm()).item<double>();
  BOOST_TEST(finding.error == error, boost::test_tools::tolerance(0.3));
  BOOST_TEST(std::log(finding.scale) == std::log((outputs[1].norm() / outputs[0].norm()).item<double>()),
             boost::test_tools::tolerance(1e-3));
}

BOOST_AUTO_TEST_CASE(names_modules) {
  check("eps", "module layer2.bn", "eps", [](Net& net) { net.eps["layer2.bn"] = 1e-3; });
  const auto fault = [](const char* path, const Prints::Forward& f) {
    return [=](Net& net) { net.faults[path] = f; };
  };
  check("bfloat16", "module layer2.conv", "B is rounded to bfloat16",
        fault("layer2.conv", [](const at::Tensor& t) { return t.to(at::kBFloat16).to(at::kFloat); }));
  check("float16", "module layer3.conv", "B is rounded to float16",
        fault("layer3.conv", [](const at::Tensor& t) { return t.to(at::kHalf).to(at::kFloat); }));
  check("scale", "module layer3.conv", "B = 1.0001 A",
        fault("layer3.conv", [](const at::Tensor& t) { return t * 1.0001; }));
  check("offset", "module layer1.conv", "B = A + 0.5",
        fault("layer1.conv", [](const at::Tensor& t) { return t + 0.5; }));
  check("channels", "module layer3.relu", "another order",
        fault("layer3.relu", [](const at::Tensor& t) { return t.roll(1, 1); }));
  check("NaN", "module layer2.relu", "A has 0 NaN, B has 1", fault("layer2.relu", [](const at::Tensor& t) {
          at::Tensor other = t.clone();
          other.view(-1)[5] = NAN;
          return other;
        }));
  check("zeros", "module layer2.conv", "B is all zeros",
        fault("layer2.conv", [](const at::Tensor& t) { return at::zeros_like(t); }));
  check("activation", "module layer2.relu", "",
        fault("layer2.relu", [](const at::Tensor& t) { return t + 1e-3 * t.tanh(); }));
  check("shape", "module layer2.relu", "[2, 8, 24, 24] in A, [1, 8, 24, 24] in B",
        fault("layer2.relu", [](const at::Tensor& t) { return t.slice(0, 0, 1); }));
  const auto one = [](const at::Tensor& t) {
    at::Tensor other = t.clone();
    other.view(-1)[777] += 1;
    return other;
  };
  check("one value", "module layer1.conv", "", fault("layer1.conv", one));
  BOOST_TEST(found(fault("layer1.conv", one))[0].cause == "one of 9216 values differs");
}

BOOST_AUTO_TEST_CASE(names_what_is_between_modules) {
  for (const Divergence& finding : found([](Net& net) { net.shortcut = false; })) {
    BOOST_TEST(name_of(finding.kind) == "between");
    BOOST_TEST(finding.path == "layer2");
    BOOST_TEST(finding.after == "layer2.bn");
    BOOST_TEST(finding.before == "layer2.relu");
  }
}

BOOST_AUTO_TEST_CASE(names_weights) {
  const auto change = [](const char* name, const std::function<at::Tensor(const at::Tensor&)>& by) {
    return [=](Net& net) { replace(net, name, by); };
  };
  check("order", "weight layer2.conv.weight", "the same values in another order, such as A.transpose(",
        change("layer2.conv.weight", [](const at::Tensor& t) { return t.transpose(2, 3); }));
  check("rounding", "weight layer3.conv.weight", "B is rounded to bfloat16",
        change("layer3.conv.weight", [](const at::Tensor& t) { return t.to(at::kBFloat16).to(at::kFloat); }));
  check("scale", "weight layer1.bn.bias", "B = 2 A",
        change("layer1.bn.bias", [](const at::Tensor& t) { return 2 * t; }));
  check("zeros", "weight layer2.bn.running_mean", "B is all zeros",
        change("layer2.bn.running_mean", [](const at::Tensor& t) { return at::zeros_like(t); }));
  check("lowest bit", "weight layer2.conv.weight", "", change("layer2.conv.weight", [](const at::Tensor& t) {
          t.view(-1).slice(0, 0, 1).mul_(1 + 1.2e-7);
          return t;
        }));
  check("missing", "weight fc.bias", "B has no fc.bias", [](Net& net) { net.weights.erase("fc.bias"); });
}

BOOST_AUTO_TEST_CASE(weights_that_explain_nothing_do_not_decide) {
  const auto unused = [](Net& net) {
    replace(net, "unused.weight", [](const at::Tensor& t) { return t + 1; });
  };
  Net net;
  unused(net);
  const auto verdict = judged(prints({}, false), prints(net, true));
  // It is said, and is the answer if there is no other; a call that it belongs to is not named.
  BOOST_TEST_REQUIRE(verdict.suspects.size() == 1U);
  BOOST_TEST(name_of(verdict.suspects[0].kind) + " " + verdict.suspects[0].path == "weight unused.weight");
  BOOST_TEST(verdict.suspects[0].call_a == compare::kNone);
  BOOST_TEST(std::count_if(verdict.weights.begin(), verdict.weights.end(),
                           [](const auto& row) { return !row.agrees; }) == 1);
  // A weight that differs behind the first difference.
  check("both", "module layer1.bn", "", [&](Net& both) {
    unused(both);
    both.eps["layer1.bn"] = 1e-2;
    replace(both, "layer3.conv.weight", [](const at::Tensor& t) { return t * 2; });
  });
}

BOOST_AUTO_TEST_CASE(names_the_input) {
  const auto nothing = [](Net&) {};
  check("BGR", "input ", "the same values in another order", nothing, images().flip(1));
  check("not normalised", "input ", "B = 2 A - 1", nothing, images() * 2 - 1);
  check("float16", "input ", "B is rounded to float16", nothing, images().to(at::kHalf).to(at::kFloat));
  check("eight units", "input ", "", nothing, images() * (1 + 5e-7));
  // It comes before what differs behind it; but rounding of it does not hide that.
  check(
      "both", "input ", "", [](Net& net) { net.eps["layer2.bn"] = 1e-2; }, images() * 1.001);
  check(
      "rounding", "module layer2.bn", "", [](Net& net) { net.eps["layer2.bn"] = 1e-2; },
      images() * (1 + 1e-7));
}

BOOST_AUTO_TEST_CASE(a_side_may_be_compiled) {
  const auto first = [](bool a_is_compiled, bool b_is_compiled, const std::function<void(Net&)>& change,
                        const at::Tensor& x = images()) {
    Net a, b;
    a.compiled = a_is_compiled, b.compiled = b_is_compiled;
    change(b);
    const auto verdict = judged(prints(a, false), prints(b, true, x));
    return verdict.agree() ? "" : name_of(verdict.suspects[0].kind) + " " + verdict.suspects[0].path;
  };
  for (const auto& [a, b] :
       {std::make_pair(false, true), std::make_pair(true, false), std::make_pair(true, true)}) {
    BOOST_TEST(first(a, b, [](Net&) {}) == "");
    BOOST_TEST(first(
                   a, b, [](Net&) {}, images().flip(1)) == "input layer1.conv");
    BOOST_TEST(first(a, b, [](Net& net) { net.eps["layer2.bn"] = 1e-2; }) == "between layer2");
    BOOST_TEST(first(a, b, [](Net& net) {
                 replace(net, "layer2.bn.bias", [](const at::Tensor& t) { return t + 0.1; });
               }) == "weight layer2.bn.bias");
  }
}

BOOST_AUTO_TEST_CASE(judges_all_forwards) {
  Net net;
  int forward = 0;
  net.faults["layer3.bn"] = [&](const at::Tensor& t) { return ++forward == 3 ? t * 1.001 : t; };
  const auto verdict = judged(Net().prints(images(), 4), net.prints(images(), 4));
  BOOST_TEST_REQUIRE(!verdict.agree());
  BOOST_TEST(verdict.suspects[0].path == "layer3.bn");
  BOOST_TEST(verdict.suspects[0].sample == 2U);
  BOOST_TEST(verdict.suspects[0].sample_b == 2U);
  BOOST_TEST(verdict.compared == 4 * 34);
}

BOOST_AUTO_TEST_CASE(lists_suspects_in_order) {
  Net net;
  const auto by = [](double factor) { return [=](const at::Tensor& t) { return t * factor; }; };
  net.faults["layer1.conv"] = by(1.00001), net.faults["layer2.conv"] = by(1.001),
  net.faults["layer3.conv"] = by(1.1);
  const auto verdict = judged(prints({}, false), prints(net, true));
  std::vector<std::string> paths;
  for (const auto& suspect : verdict.suspects) paths.push_back(suspect.path);
  BOOST_TEST_REQUIRE(paths.size() >= 3U);
  BOOST_TEST(paths[0] == "layer1.conv");
  for (const char* path : {"layer2.conv", "layer3.conv"})
    BOOST_TEST((std::find(paths.begin(), paths.end(), path) != paths.end()));
  BOOST_TEST(paths.size() <= 5U);
}

BOOST_AUTO_TEST_CASE(orders_of_dimensions_do_not_matter) {
  const auto x = images(), y = x.permute({0, 2, 3, 1}).contiguous();
  Prints a, b;
  const auto conv = [](const at::Tensor& t) { return t.exp(); };
  a.call("", "Net", x, [&](const at::Tensor& t) { return a.call("exp", "Exp", t, conv); });
  const auto back = [](const at::Tensor& t) { return t.permute({0, 3, 1, 2}).contiguous(); };
  b.call("", "Net", x, [&](const at::Tensor&) { return back(b.call("exp", "Exp", y, conv)); });
  BOOST_TEST(judged(a.bytes, b.bytes).agree());
  // Where nothing follows that agrees, another order is a difference.
  Prints last;
  last.call("exp", "Exp", y, conv);
  BOOST_TEST(judged(a.bytes, last.bytes).suspects.at(0).path == "exp");
  Prints c;
  c.call("", "Net", x, [&](const at::Tensor&) {
    return c.call("exp", "Exp", y, [](const at::Tensor& t) { return t.exp() * 1.1; });
  });
  BOOST_TEST(judged(a.bytes, c.bytes).suspects.at(0).path == "exp");
}

BOOST_AUTO_TEST_CASE(says_what_was_not_compared) {
  Prints a, b;
  const auto two = [](Prints& prints, const at::Tensor& second, bool third) {
    prints.tensor(frames::Kind::forward_input, "m", "M", at::ones({3}), 0, 0);
    prints.tensor(frames::Kind::forward_output, "m", "M", at::ones({3}), 0, 0);
    prints.tensor(frames::Kind::forward_output, "m", "M", second, 0, 1);
    if (third) prints.tensor(frames::Kind::forward_output, "m", "M", at::ones({3}), 0, 2);
  };
  two(a, {}, false), two(b, at::ones({3}), false);
  auto verdict = judged(a.bytes, b.bytes);
  BOOST_TEST(verdict.agree());
  BOOST_TEST(verdict.compared == 2);
  BOOST_TEST(verdict.not_compared.at("it is undefined") == 1);
  BOOST_TEST(verdict.gaps.at(0) == "what m (M) returned in A");
  Prints more;
  two(more, at::ones({3}), true);
  for (const bool turned : {false, true}) {
    verdict = turned ? judged(more.bytes, b.bytes) : judged(b.bytes, more.bytes);
    BOOST_TEST_REQUIRE(!verdict.agree());
    BOOST_TEST(verdict.suspects[0].certain);
    BOOST_TEST(verdict.suspects[0].cause == (turned ? "A returns 3 values, B 2" : "A returns 2 values, B 3"));
  }
}

namespace {

/// A model whose forward is called once with `inputs`, and calls `inside` between.
std::string model(const std::vector<at::Tensor>& inputs, const std::function<void(Prints&)>& inside,
                  const std::function<void(Prints&)>& returns, const std::string& language = "python") {
  Prints prints;
  prints.header("language\t" + language + "\n");
  std::uint16_t slot = 0;
  for (const auto& x : inputs) prints.tensor(frames::Kind::forward_input, "", "Net", x, 0, slot++);
  inside(prints);
  returns(prints);
  return prints.bytes;
}
std::string returning(const std::function<void(Prints&)>& returns) {
  return model(
      {at::ones({3})}, [](Prints&) {}, returns);
}
std::string returning(const std::vector<std::pair<std::string, at::Tensor>>& outputs) {
  return returning([&](Prints& prints) {
    std::uint16_t slot = 0;
    for (const auto& [name, tensor] : outputs) {
      prints.name = name;
      prints.tensor(frames::Kind::forward_output, "", "Net", tensor, 0, slot++);
    }
  });
}
std::string first_of(const std::string& a, const std::string& b) {
  const Verdict verdict = judged(a, b);
  if (verdict.agree()) return verdict.gaps.empty() ? "" : "gap: " + verdict.gaps[0];
  const Divergence& first = verdict.suspects[0];
  return name_of(first.kind) + " " + first.path + ": " + first.cause;
}

}  // namespace

BOOST_AUTO_TEST_CASE(infinities_agree_where_they_are_and_with_their_signs) {
  const auto with = [](double value, std::int64_t at) {
    const at::Tensor t = at::ones({40});
    t[at] = value;
    return returning({{"", t}});
  };
  BOOST_TEST(first_of(with(INFINITY, 3), with(INFINITY, 3)) == "");
  for (const auto& other : {with(-INFINITY, 3), with(INFINITY, 4)})
    BOOST_TEST(contains(first_of(with(INFINITY, 3), other), "infinities have another sign"));
  // What is behind such a difference is not judged by it.
  const auto masked = [](double value) {
    const at::Tensor mask = at::full({6, 6}, value).triu(1),
                     x = at::rand({6, 6}, at::make_generator<at::CPUGeneratorImpl>(2));
    return model(
        {x},
        [&](Prints& prints) {
          prints.call("mask", "Mask", at::ones({1}), [&](const at::Tensor&) { return mask; });
          prints.call("softmax", "Softmax", x + mask, [](const at::Tensor& t) { return t.softmax(-1); });
        },
        [&](Prints& prints) {
          prints.tensor(frames::Kind::forward_output, "", "Net", (x + mask).softmax(-1));
        });
  };
  const Verdict verdict = judged(masked(-INFINITY), masked(INFINITY));
  BOOST_TEST_REQUIRE(verdict.suspects.size() == 1U);
  BOOST_TEST(verdict.suspects[0].path == "mask");
  BOOST_TEST(verdict.unjudged.at(0).path == "softmax");
  BOOST_TEST(verdict.unjudged_tensors == 3);
}

BOOST_AUTO_TEST_CASE(outputs_of_the_model_have_one_shape_and_whole_numbers_one_dtype) {
  const at::Tensor t = at::rand({3, 6, 50});
  const auto other = [&](const at::Tensor& y) {
    return first_of(returning({{"", t}}), returning({{"", y}}));
  };
  BOOST_TEST(
      other(t.transpose(0, 1).contiguous()) ==
      "module : the same values in another order: B = A.transpose(0, 1) ([3, 6, 50] in A, [6, 3, 50] in B)");
  BOOST_TEST(other(t.reshape({6, 3, 50})) == "module : the same values, [3, 6, 50] in A, [6, 3, 50] in B");
  BOOST_TEST(other(t.unsqueeze(1)) == "module : the same values, [3, 6, 50] in A, [3, 1, 6, 50] in B");
  const auto empty = [](std::int64_t n) { return returning({{"", at::empty({0, n})}}); };
  BOOST_TEST(contains(first_of(empty(4), empty(5)), "[0, 4] in A, [0, 5] in B"));
  BOOST_TEST(first_of(empty(4), empty(4)) == "");
  // Whole numbers are the same or not, however large they are and however much else was rounded.
  const auto whole = [](std::int64_t value, at::ScalarType type = at::kLong) {
    return returning({{"", at::full({1}, value, type)}});
  };
  BOOST_TEST(first_of(whole((1LL << 62) + 1), whole(1LL << 62)) != "");
  BOOST_TEST(contains(first_of(whole(7), whole(7, at::kInt)), "int64 in A, int32 in B"));
  const Verdict half = judged(returning({{"", t}}), returning({{"", t.to(at::kHalf)}}));
  BOOST_TEST(half.agree());
  BOOST_TEST(half.dtypes.at(0) == "(root) returns float32 in A, float16 in B");
  // Squares that overflow, and those that vanish.
  for (const double size : {1e200, 1e-200}) {
    const auto sized = [&](double by) { return returning({{"", at::full({4}, size * by, at::kDouble)}}); };
    BOOST_TEST(contains(first_of(sized(1), sized(0.5)), "module "));
    BOOST_TEST(first_of(sized(1), sized(1)) == "");
    BOOST_TEST(judged(sized(1), sized(0.5)).suspects.at(0).error == 0.5, boost::test_tools::tolerance(1e-6));
  }
}

BOOST_AUTO_TEST_CASE(results_are_compared_by_name_and_all_of_them) {
  const at::Tensor x = at::rand({3}), y = at::rand({3});
  const auto reference = returning({{"boxes", x}, {"labels", y}});
  BOOST_TEST(first_of(reference, returning({{"labels", y}, {"boxes", x}})) == "");
  BOOST_TEST(first_of(reference, returning({{"", x}, {"", y}})) == "");  // a language without names
  BOOST_TEST(first_of(reference, returning({{"boxes", x}})) ==
             "module : A returns 2 values, B 1; A alone has labels");
  BOOST_TEST(first_of(returning({{"boxes", x}}), reference) ==
             "module : A returns 1 value, B 2; B alone has labels");
  BOOST_TEST(first_of(reference, returning({{"boxes", x}, {"scores", y}})) ==
             "module : A returns 2 values, B 2; A alone has labels; B alone has scores");
  const auto other = [](const char* result, const char* text) {
    return returning([=](Prints& prints) { prints.other("", "Net", result, text); });
  };
  BOOST_TEST(first_of(returning({{"", x}}), other("value", "None")) ==
             "module : it returns None in B, a tensor in A");
  BOOST_TEST(first_of(other("value", "[]"), other("value", "None")) == "module : A returns 1 value, B 0");
  BOOST_TEST(first_of(other("value", "'a'"), returning({{"", x}})) == "module : A returns 1 value, B 1");
  BOOST_TEST(first_of(other("fingerprint", "it is odd"), other("fingerprint", "it is odd")) ==
             "gap: what (root) (Net) returned in A");
  BOOST_TEST(first_of(other("value", "'a'"), other("value", "'b'")) ==
             "module : it returns 'b' in B, 'a' in A");
  BOOST_TEST(first_of(returning({{"", x}}), other("exception", "RuntimeError: no")) ==
             "module : B throws RuntimeError: no");
  BOOST_TEST(first_of(other("exception", "RuntimeError: no"), other("exception", "TypeError: no")) ==
             "module : A throws RuntimeError: no, B throws TypeError: no");
  // A file of C++ says that a tensor is undefined, one of Python nothing.
  BOOST_TEST(first_of(returning({{"", x}}), returning([&](Prints& prints) {
                        prints.tensor(frames::Kind::forward_output, "", "Net", x);
                        prints.other("", "Net", "value", "None", 1);
                      })) == "");
}

BOOST_AUTO_TEST_CASE(what_is_absent_keeps_its_place) {
  const at::Tensor x = at::rand({3});
  using Named = std::vector<std::pair<std::string, bool>>;  // whether it is x or None
  const auto of = [&](const Named& results) {
    return returning([=](Prints& prints) {
      std::uint16_t slot = 0;
      for (const auto& [name, there] : results) {
        prints.name = name;
        there ? prints.tensor(frames::Kind::forward_output, "", "Net", x, 0, slot++)
              : prints.other("", "Net", "value", "None", slot++);
      }
    });
  };
  const auto first = of({{"[0]", true}, {"[1]", false}}), last = of({{"[0]", false}, {"[1]", true}});
  BOOST_TEST(first_of(first, first) == "");
  BOOST_TEST(first_of(last, last) == "");
  BOOST_TEST(first_of(last, first) == "module : it returns a tensor in B, None in A");
  BOOST_TEST(first_of(first, last) == "module : it returns None in B, a tensor in A");
  // Of C++ slots are known, and no names.
  BOOST_TEST(first_of(last, of({{"", false}, {"", true}})) == "");
  BOOST_TEST(first_of(last, of({{"", true}, {"", false}})) != "");
  BOOST_TEST(first_of(last, of({{"", true}})) == "");
  BOOST_TEST(first_of(of({{"a", true}, {"b", false}}), of({{"a", true}, {"c", false}})) == "");
  BOOST_TEST(first_of(of({{"1", true}}), of({{"<1>", true}})) ==
             "module : A returns 1 value, B 1; A alone has 1; B alone has <1>");
}

BOOST_AUTO_TEST_CASE(a_value_is_compared_only_if_it_is_entered_as_such) {
  const at::Tensor x = at::rand({3});
  // What a model returned in B, and a part of the model in A.
  const auto text = [&](bool within, const char* value) {
    Prints prints;
    prints.header("language\tpython\n");
    if (within) prints.tensor(frames::Kind::forward_input, "", "Net", x);
    prints.tensor(frames::Kind::forward_input, "part", "Part", x);
    prints.other("part", "Part", "value", value);
    if (within) prints.tensor(frames::Kind::forward_output, "", "Net", x);
    return prints.bytes;
  };
  BOOST_TEST(first_of(text(false, "'a'"), text(false, "'a'")) == "");
  BOOST_TEST(first_of(text(true, "'a'"), text(true, "'b'")) == "");  // what was made of it agrees
  const Verdict verdict = judged(text(true, "'a'"), text(false, "'b'"));
  BOOST_TEST(verdict.agree());
  const auto gap = [](const Verdict& of, const std::string& what) {
    return std::count(of.gaps.begin(), of.gaps.end(), what) == 1;
  };
  BOOST_TEST(gap(verdict, "what part (Part) returned in B"));
  // A result that B alone has, inside of a call that A alone was seen to make.
  const auto more = [&](bool whole) {
    Prints prints;
    prints.header("language\tpython\n");
    if (!whole) prints.tensor(frames::Kind::forward_input, "", "Net", x);
    prints.tensor(frames::Kind::forward_input, "part", "Part", x);
    prints.tensor(frames::Kind::forward_output, "part", "Part", x);
    if (whole) prints.tensor(frames::Kind::forward_output, "part", "Part", x + 1, 0, 1);
    if (!whole) prints.tensor(frames::Kind::forward_output, "", "Net", x);
    return prints.bytes;
  };
  BOOST_TEST(gap(judged(more(false), more(true)), "what part (Part) returned in B"));
  // A call that was not seen to return anything returned what was not recorded.
  const auto silent = [&] {
    Prints prints;
    prints.header("language\tpython\n");
    prints.call("l", "Linear", x, [](const at::Tensor& t) { return t; });
    prints.tensor(frames::Kind::forward_input, "other", "Other", x);
    return prints.bytes;
  }();
  BOOST_TEST(gap(judged(silent, silent), "what other (Other) returned in A"));
  const auto fails = [&](bool says) {
    Prints prints;
    prints.header("language\tpython\n");
    prints.call("l", "Linear", x, [](const at::Tensor& t) { return t; });
    if (says) prints.header("not_recorded\tTypeError: it is odd\n");
    return prints.bytes;
  };
  BOOST_TEST(first_of(fails(true), fails(false)) ==
             "gap: what could not be recorded in A (TypeError: it is odd)");
  BOOST_TEST(first_of(fails(false), fails(true)) ==
             "gap: what could not be recorded in B (TypeError: it is odd)");
}

BOOST_AUTO_TEST_CASE(whole_numbers_that_were_returned_are_exact) {
  const auto x = [](std::int64_t number) { return at::full({1}, number, at::kLong); };
  const std::int64_t large = std::int64_t{1} << 53;
  const Verdict verdict = judged(returning({{"", x(large)}}), returning({{"", x(large + 1)}}));
  BOOST_TEST_REQUIRE(!verdict.agree());
  BOOST_TEST(verdict.suspects[0].exact);
  // Beside a tensor that differs, too, for which rounding may be the reason.
  const at::Tensor y = at::rand({3});
  const Verdict both = judged(returning({{"a", y}, {"b", x(1)}}), returning({{"a", y * 1.01}, {"b", x(2)}}));
  BOOST_TEST_REQUIRE(both.suspects.size() == 2U);
  BOOST_TEST(!both.suspects[0].exact);
  BOOST_TEST(both.suspects[1].exact);
  BOOST_TEST(both.repeated == 0);
  const auto and_text = [&](double factor, const char* value) {
    return returning([&, value](Prints& prints) {
      prints.tensor(frames::Kind::forward_output, "", "Net", y * factor);
      prints.other("", "Net", "value", value, 1);
    });
  };
  const Verdict text = judged(and_text(1, "'a'"), and_text(1.01, "'b'"));
  BOOST_TEST_REQUIRE(text.suspects.size() == 2U);
  BOOST_TEST(text.suspects[1].certain);
  BOOST_TEST(text.gaps.empty());
  // Only one of two calls of a module is tried, so the other is counted.
  const auto twice = [&](double factor) {
    Prints prints;
    prints.header("language\tpython\n");
    for (int i = 0; i < 2; ++i) prints.call("", "Net", y, [&](const at::Tensor& t) { return t * factor; });
    return prints.bytes;
  };
  BOOST_TEST(judged(twice(1), twice(1.01)).suspects.size() == 1U);
  BOOST_TEST(judged(twice(1), twice(1.01)).repeated == 1);
}

BOOST_AUTO_TEST_CASE(all_arguments_of_the_model_are_inputs) {
  const at::Tensor x = at::rand({3, 4}), mask = at::ones({3});
  const auto with = [&](const std::vector<at::Tensor>& inputs) {
    return model(
        inputs, [&](Prints& prints) { prints.call("l", "Linear", x, [](const at::Tensor& t) { return t; }); },
        [&](Prints& prints) {
          prints.tensor(frames::Kind::forward_output, "", "Net", x * inputs.back().sum());
        });
  };
  const Verdict verdict = judged(with({x, mask}), with({x, mask * 2}));
  BOOST_TEST_REQUIRE(!verdict.agree());
  BOOST_TEST(name_of(verdict.suspects[0].kind) == "input");
  BOOST_TEST(verdict.suspects[0].slot == 1);
  BOOST_TEST(first_of(with({x}), with({x, x})) ==
             "gap: what only one of the two was given: A was given 1 value, B 2");
}

BOOST_AUTO_TEST_CASE(nothing_differs_only_if_all_was_compared) {
  const at::Tensor x = at::rand({3, 4});
  const auto calls = [&](const std::vector<std::string>& names, const char* language = "python") {
    Prints prints;
    prints.header(c10::str("language\t", language, "\n"));
    at::Tensor t = x;
    for (const auto& name : names)
      t = prints.call(name, name, t, [](const at::Tensor& y) { return y.exp(); });
    return prints.bytes;
  };
  BOOST_TEST(first_of(calls({"A", "B"}), calls({"A", "B"})) == "");
  BOOST_TEST(first_of(calls({"A", "B"}), calls({"A"})) == "gap: what B (B) returned in A");
  BOOST_TEST(first_of(calls({"A"}), calls({"A", "B"})) == "gap: what B (B) returned in B");
  BOOST_TEST(contains(first_of(calls({"A"}), calls({"A"}, "c++")), "gap: what B's model returned"));
  Prints later;
  later.bytes = calls({"A"});
  later.header("later_forwards\t3\n");
  BOOST_TEST(first_of(later.bytes, calls({"A"})) == "gap: 3 later forwards of A");
  // A compiled model has no output that was seen; that of the whole is not that of its last module.
  Net net;
  net.compiled = true;
  BOOST_TEST(contains(first_of(prints({}, false), prints(net, false)), "gap: what B's model returned"));
  const std::string whole = prints({}, false);
  BOOST_TEST(first_of(whole, whole.substr(0, whole.size() - 64)) != "");
}

BOOST_AUTO_TEST_CASE(errors_that_hide_faults_are_said) {
  // Rounding that is amplified to an error of 1 at once, and a module behind it.
  const at::Tensor x = at::rand({64}, at::make_generator<at::CPUGeneratorImpl>(3));
  const auto chaotic = [&](double by) {
    Prints prints;
    const auto amplified = [&](const at::Tensor& t) { return (t * 1e9 * by).sin(); };
    prints.call("", "Net", x, [&](const at::Tensor& t) {
      const auto y = prints.call("amplifier", "Amplifier", t, amplified);
      return prints.call("fc", "Linear", y, [](const at::Tensor& in) { return in * 2; });
    });
    return prints.bytes;
  };
  const Verdict verdict = judged(chaotic(1), chaotic(1 + 1e-6));
  BOOST_TEST_REQUIRE(!verdict.agree());
  BOOST_TEST(verdict.suspects[0].path == "amplifier");
  BOOST_TEST_REQUIRE(verdict.unjudged.size() == 1U);
  BOOST_TEST(verdict.unjudged[0].path == "fc");
  BOOST_TEST(verdict.unjudged_from == "fc");
}

BOOST_AUTO_TEST_CASE(code_of_a_model_that_was_not_seen_is_named_by_what_the_other_side_saw) {
  // In B the residual of layer2 is forgotten; the next module that is seen lies in layer3.
  const auto net = [](bool compiled, bool residual) {
    Prints prints;
    prints.header(compiled ? "language\tc++\n" : "language\tpython\n");
    if (compiled) {
      prints.hides = [](const std::string&, const std::string& type) { return type != "Linear"; };
    }
    const at::Tensor x = at::rand({4, 8}, at::make_generator<at::CPUGeneratorImpl>(5));
    prints.call("", "Net", x, [&](at::Tensor t) {
      for (const std::string i : {"1", "2", "3"}) {
        t = prints.call("layer" + i, "Block", t, [&](const at::Tensor& in) {
          const auto y =
              prints.call("layer" + i + ".fc", "Linear", in, [](const at::Tensor& z) { return z.sin(); });
          return i == "2" && !residual ? y : y + in;
        });
      }
      return t;
    });
    return prints.bytes;
  };
  const Verdict verdict = judged(net(false, true), net(true, false));
  BOOST_TEST_REQUIRE(!verdict.agree());
  const Divergence& first = verdict.suspects[0];
  BOOST_TEST(name_of(first.kind) + " " + first.path + ", " + first.after + ", " + first.before ==
             "between layer2, layer2.fc, layer3.fc");
  BOOST_TEST(first.unseen != compare::kNone);  // so that a second pass can try it from layer2.fc's input
  BOOST_TEST(first.unseen_inputs.size() == 1U);
}

BOOST_AUTO_TEST_CASE(never_agrees_about_nothing) {
  Prints nothing, header, other;
  header.header("language\tpython\n");
  other.call("a", "M", at::rand({3}), [](const at::Tensor& t) { return at::cat({t, t}); });
  const std::string net = Net().prints(images());
  BOOST_TEST(
      contains(error_of([&] { judged(net, header.bytes); }), "did the model run where they were written?"));
  BOOST_TEST(contains(error_of([&] { judged(header.bytes, header.bytes); }), "could be compared"));
  BOOST_TEST(
      contains(error_of([&] { judged(net, other.bytes); }), "name modules that belong together by a map"));
  // Weights alone can be compared.
  Prints a, b;
  a.weight("w", "", at::ones({3})), b.weight("w", "", at::zeros({3}));
  BOOST_TEST(judged(a.bytes, a.bytes).agree());
  BOOST_TEST(judged(a.bytes, b.bytes).suspects.at(0).path == "w");
}

BOOST_AUTO_TEST_CASE(judges_what_is_left_of_a_file) {
  Net net;
  net.eps["layer2.bn"] = 1e-2;
  const std::string a = prints({}, false), b = prints(net, false);
  const auto whole = judged(a, b);
  std::int64_t last = 0;
  for (std::size_t size = 30000; size <= b.size(); size += 997) {
    const auto verdict = judged(a, b.substr(0, size));
    BOOST_TEST(verdict.compared >= last);
    last = verdict.compared;
    BOOST_TEST((verdict.agree() || verdict.suspects[0].path == "layer2.bn"));
  }
  BOOST_TEST(last <= whole.compared);
}

BOOST_AUTO_TEST_CASE(numbers_that_make_no_sense_do_not_agree) {
  // Fingerprints with right checksums whose sums are not of their digests.
  const std::string good = Net().prints(images());
  Prints bad;
  compare::Fingerprint print = compare::fingerprint(images());
  print.digest[0] ^= 1, print.sum_sq = NAN;
  frames::Frame frame;
  frame.kind = frames::Kind::forward_output, frame.dims = 1, frame.sizes[0] = frame.data_bytes = sizeof print;
  frame.data = &print, frame.result = "fingerprint";
  bad.add(frame);
  Prints reference;
  reference.tensor(frames::Kind::forward_output, "", "", images());
  BOOST_TEST(!judged(reference.bytes, bad.bytes).agree());
}

BOOST_AUTO_TEST_CASE(survives_any_order_of_frames) {
  Prints good;
  Net().run(good, images());
  std::vector<std::string> all;
  for (std::size_t i = 0; i < good.ends.size(); ++i) {
    const std::size_t from = i == 0 ? 0 : good.ends[i - 1];
    all.push_back(good.bytes.substr(from, good.ends[i] - from));
  }
  std::mt19937 random(8);
  int judged_some = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::string bytes;
    auto these = all;
    if (trial % 2 == 0) std::shuffle(these.begin(), these.end(), random);
    for (auto frame : these) {
      const auto what = random() % 20;
      if (what == 0) continue;
      if (what == 1) bytes += frame;
      if (what == 2) frame[32] = static_cast<char>(random() % 3);   // sample
      if (what == 3) frame[72] = static_cast<char>(random() % 3);   // thread
      if (what == 4) frame[84] = static_cast<char>(random());       // slot
      if (what == 5) frame[94] = static_cast<char>(random() % 12);  // kind
      bytes += frame;
    }
    try {
      const auto verdict = judged(good.bytes, bytes);
      judged_some += verdict.compared > 0 ? 1 : 0;
      judged(bytes, good.bytes);
    } catch (const c10::ValueError&) {
    }
  }
  BOOST_TEST(judged_some > 200);
}

BOOST_AUTO_TEST_CASE(reads_thresholds) {
  const auto thresholds = Thresholds::parse("8,2.5");
  BOOST_TEST(thresholds.tolerance == 8);
  BOOST_TEST(thresholds.gain == 2.5);
  for (const char* text : {"", "8", "8,", ",4", "8,4x", "-1,4", "nan,4", "8,inf", "8 4"})
    BOOST_TEST(contains(error_of([&] { Thresholds::parse(text); }), "write 16,4"), text);
}

BOOST_AUTO_TEST_SUITE_END()
