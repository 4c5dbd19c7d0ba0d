// What the rules say of facts: against NumPy, at their limits, and in words.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <tuple>

#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/rules/rules.hpp>

#include "tests/support.hpp"

namespace {

using torchtap::rules::Bin;
using torchtap::rules::check;
using torchtap::rules::Facts;
using torchtap::rules::Finding;
using torchtap::rules::Rules;
using torchtap::rules::Tensor;
using torchtap::rules::undecided;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Facts facts_of(const std::string& type, Tensor tensor = Tensor::output) {
  Facts facts;
  facts.path = "layer";
  facts.type = type;
  facts.tensor = tensor;
  return facts;
}

std::vector<std::string> found(const std::vector<Facts>& all, const Rules& rules = {}) {
  std::vector<std::string> names;
  for (const Finding& finding : check(all, rules)) names.push_back(finding.rule);
  return names;
}

std::vector<std::string> found(const Facts& facts, const Rules& rules = {}) {
  return found(std::vector<Facts>{facts}, rules);
}

using Names = std::vector<std::string>;

/// Facts that are often exactly at a limit, or next to it.
class RandomFacts {
 public:
  Facts operator()() {
    static const std::vector<std::string> types{"ReLU", "Tanh", "Sigmoid", "Linear", "GELU", "Hardtanh"};
    Facts facts = facts_of(one_of(types), static_cast<Tensor>(below(4)));
    facts.slot = chance(0.1) ? 1 : 0;
    facts.leaf = !chance(0.2);
    facts.dimensions = 1 + below(2);
    facts.calls = maybe(chance(0.1) ? 0 : 5 + below(10));
    facts.count = maybe(1000);
    facts.nan = maybe(chance(0.1) ? 2 : 0);
    facts.inf = maybe(chance(0.1) ? 1 : 0);
    facts.zeros = maybe(one_of(std::vector<double>{0, 500, 989, 990, 991, 999, 1000}));
    facts.inactive_channels = maybe(near(0.5));
    facts.std = maybe(chance(0.2) ? 0 : chance(0.5) ? std::sqrt(near(0.5)) : number());
    facts.mean = maybe(number());
    facts.rms = maybe(chance(0.1)   ? 0
                      : chance(0.3) ? near(one_of(std::vector<double>{1e-7, 1e-3, 1, 1e3}))
                                    : number());
    facts.min = maybe(chance(0.2) ? 0 : -number());
    facts.max = maybe(chance(0.2) ? 0 : number());
    if (facts.type == "Sigmoid" || facts.type == "Tanh" || facts.type == "Hardtanh") squash(facts);
    for (int i = below(8); i > 0; --i)
      facts.updates.push_back(chance(0.4) ? 0 : near(one_of(std::vector<double>{6e-8, 0.1, 0.3})));
    return facts;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool chance(double share) { return std::uniform_real_distribution<>()(random_) < share; }
  double number() { return std::exp(std::normal_distribution<>(0, 4)(random_)); }
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(below(static_cast<int>(all.size())))];
  }
  /// A limit, the number before or after it, or one that is not so near.
  double near(double limit) {
    switch (below(4)) {
      case 0:
        return limit;
      case 1:
        return std::nextafter(limit, 0);
      case 2:
        return std::nextafter(limit, 1e9);
      default:
        return limit * std::exp(std::normal_distribution<>()(random_));
    }
  }
  std::optional<double> maybe(double value) {
    if (chance(0.15)) return std::nullopt;
    return chance(0.05) ? kNaN : value;
  }
  /// Bins and sums of values of which many are near the ends of the range.
  void squash(Facts& facts) {
    const bool both = facts.type != "Sigmoid";
    std::map<double, Bin> bins;
    double squares = 0, zeros = 0, least = 1, most = -1;
    const double steep = number();
    const int count = below(2) == 0 ? 0 : 200;
    for (int i = 0; i < count; ++i) {
      const double x = steep * std::normal_distribution<>(chance(0.5) ? 3 : 0, 1)(random_);
      const double y = both ? std::tanh(x) : 1 / (1 + std::exp(-x));
      squares += y * y;
      least = std::min(least, y);
      most = std::max(most, y);
      if (y == 0) {
        ++zeros;
        continue;
      }
      const double size = std::ldexp(1.0, std::ilogb(std::abs(y))), width = size / 8;
      const double low = size + std::floor((std::abs(y) - size) / width) * width;
      Bin& bin = bins[y < 0 ? -low - width : low];
      bin = y < 0 ? Bin{-low - width, -low, bin.count + 1} : Bin{low, low + width, bin.count + 1};
    }
    if (count == 0) return;
    for (const auto& [low, bin] : bins) facts.bins.push_back(bin);
    facts.count = maybe(count);
    facts.zeros = maybe(zeros);
    facts.min = maybe(least);
    facts.max = maybe(most);
    facts.rms = maybe(std::sqrt(squares / count));
  }

  std::mt19937 random_{20};
};

void write_number(std::ostream& out, const char* name, const std::optional<double>& number) {
  out << '"' << name << "\": ";
  if (!number) {
    out << "null, ";
  } else if (std::isnan(*number)) {
    out << "NaN, ";
  } else {
    out << *number << ", ";
  }
}

void write(std::ostream& out, const Facts& facts) {
  out << std::setprecision(17) << "{\"type\": \"" << facts.type << "\", \"tensor\": \""
      << name_of(facts.tensor) << "\", \"slot\": " << facts.slot
      << ", \"leaf\": " << (facts.leaf ? "true" : "false") << ", \"dimensions\": " << facts.dimensions
      << ", ";
  write_number(out, "calls", facts.calls);
  write_number(out, "count", facts.count);
  write_number(out, "nan", facts.nan);
  write_number(out, "inf", facts.inf);
  write_number(out, "zeros", facts.zeros);
  write_number(out, "min", facts.min);
  write_number(out, "max", facts.max);
  write_number(out, "rms", facts.rms);
  write_number(out, "std", facts.std);
  write_number(out, "inactive_channels", facts.inactive_channels);
  out << "\"bins\": [";
  for (std::size_t i = 0; i < facts.bins.size(); ++i) {
    const Bin& bin = facts.bins[i];
    out << (i == 0 ? "[" : ", [") << bin.low << ", " << bin.high << ", " << bin.count << ']';
  }
  out << "], \"updates\": [";
  for (std::size_t i = 0; i < facts.updates.size(); ++i) out << (i == 0 ? "" : ", ") << facts.updates[i];
  out << "]}";
}

BOOST_AUTO_TEST_SUITE(rules_verdicts)

BOOST_AUTO_TEST_CASE(a_thousand_random_facts_are_judged_as_by_numpy) {
  const torchtap_test::TemporaryDirectory folder;
  RandomFacts random;
  std::vector<std::vector<Facts>> models(125);
  for (auto& model : models) {
    for (int i = 0; i < 8; ++i) {
      model.push_back(random());
      model.back().path = std::to_string(i);
    }
  }
  {
    std::ofstream out(folder / "facts.json");
    for (std::size_t i = 0; i < models.size(); ++i) {
      for (std::size_t k = 0; k < models[i].size(); ++k) {
        out << (k == 0 ? i == 0 ? "[[" : "], [" : ",\n");
        write(out, models[i][k]);
      }
    }
    out << "]]";
  }
  const std::string command = std::string(TORCHTAP_TEST_PYTHON) + " " + TORCHTAP_TEST_RULES +
                              "/verdicts.py " + (folder / "facts.json") + " " + (folder / "findings.txt");
  BOOST_REQUIRE(std::system(command.c_str()) == 0);

  using Place = std::tuple<std::size_t, std::string, std::string>;  // model, path, rule
  std::map<Place, std::pair<double, double>> want, got;
  std::ifstream in(folder / "findings.txt");
  std::size_t model = 0;
  std::string path, rule;
  for (double value = 0, limit = 0; in >> model >> path >> rule >> value >> limit;)
    want[{model, path, rule}] = {value, limit};
  Rules rules;
  rules.set("tensor_variance", true).set("tensor_variance", "min", 0.5).set("tensor_variance", "max", 2);
  rules.set("poor_initialization", true).set("format_range", true).set("format_range", "share", 0.1);
  rules.set("format_range", "least", 0.25).set("format_range", "most", 0.97);
  std::map<std::string, int> of_rule;
  for (std::size_t i = 0; i < models.size(); ++i) {
    for (const Finding& finding : check(models[i], rules)) {
      got[{i, finding.path, finding.rule}] = {finding.value, finding.limit};
      ++of_rule[finding.rule];
      BOOST_TEST(!finding.sentence.empty());
    }
  }
  for (const auto& [place, numbers] : want) {
    const auto same = got.find(place);
    BOOST_TEST((same != got.end()),
               std::get<0>(place) << ' ' << std::get<1>(place) << ' ' << std::get<2>(place) << " is missing");
    if (same == got.end()) continue;
    BOOST_TEST(same->second.first == numbers.first, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(same->second.second == numbers.second);
  }
  for (const auto& [place, numbers] : got)
    BOOST_TEST(want.count(place) == 1U, std::get<0>(place) << ' ' << std::get<1>(place) << ' '
                                                           << std::get<2>(place) << " was not expected");
  // Each rule that judges facts was found several times, so that the comparison means something.
  for (const auto& info : torchtap::rules::catalogue()) {
    if (info.name != "drift" && info.name != "forward_failed") BOOST_TEST(of_rule[info.name] >= 5, info.name);
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_found_without_facts_and_with_numbers_that_are_not_numbers) {
  for (const auto* type : {"ReLU", "Tanh", "Sigmoid", "Linear", ""}) {
    for (const Tensor tensor : {Tensor::input, Tensor::output, Tensor::gradient, Tensor::parameter}) {
      Facts facts = facts_of(type, tensor);
      BOOST_TEST(found(facts) == Names{}, boost::test_tools::per_element());
      for (auto* number : {&facts.calls, &facts.count, &facts.nan, &facts.inf, &facts.zeros, &facts.min,
                           &facts.max, &facts.mean, &facts.rms, &facts.std, &facts.inactive_channels})
        *number = kNaN;
      Facts infinite = facts;
      for (auto* number : {&infinite.count, &infinite.nan, &infinite.inf, &infinite.zeros})
        *number = std::numeric_limits<double>::infinity();
      BOOST_TEST(found(infinite) == Names{}, boost::test_tools::per_element());
      facts.bins = {{kNaN, kNaN, kNaN}};
      facts.updates.assign(9, kNaN);
      BOOST_TEST(found({facts, facts, facts}) == Names{}, boost::test_tools::per_element());
    }
  }
  BOOST_TEST(check({}).empty());
}

BOOST_AUTO_TEST_CASE(limits_belong_to_the_side_that_the_catalogue_says) {
  Facts relu = facts_of("torch::nn::ReLUImpl");
  relu.count = 1000;
  relu.zeros = 990;
  BOOST_TEST(found(relu) == Names{"dead_relu"}, boost::test_tools::per_element());
  relu.zeros = 989;
  BOOST_TEST(found(relu) == Names{}, boost::test_tools::per_element());
  relu.inactive_channels = 0.5;
  BOOST_TEST(found(relu) == Names{}, boost::test_tools::per_element());
  relu.inactive_channels = 0.51;
  BOOST_TEST(found(relu) == Names{"dead_relu"}, boost::test_tools::per_element());
  relu.type = "GELU";
  BOOST_TEST(found(relu) == Names{}, boost::test_tools::per_element());
  relu.type = "__torch__.torch.nn.modules.activation.___torch_mangle_3.ReLU";
  relu.tensor = Tensor::input;
  BOOST_TEST(found(relu) == Names{}, boost::test_tools::per_element());

  // The ratio to the module before, over a module with others inside and one without a gradient.
  std::vector<Facts> gradients(4, facts_of("Linear", Tensor::gradient));
  gradients[0].rms = 1;
  gradients[1].rms = 50;
  gradients[1].leaf = false;
  gradients[2].rms = 0;
  gradients[3].rms = 1e-3;
  BOOST_TEST(found(gradients) == (Names{"all_zero", "vanishing_gradient"}), boost::test_tools::per_element());
  gradients[3].rms = 0.999e-3;
  BOOST_TEST(found(gradients) == (Names{"all_zero", "vanishing_gradient", "vanishing_gradient"}),
             boost::test_tools::per_element());
  gradients[3].slot = 1;  // another tensor
  BOOST_TEST(found(gradients) == (Names{"all_zero", "vanishing_gradient"}), boost::test_tools::per_element());
  // Loss scale: absolute limits move with it, ratios do not.
  std::vector<Facts> scaled(2, facts_of("Linear", Tensor::gradient));
  scaled[0].rms = 2000;
  scaled[1].rms = 3000;
  BOOST_TEST(found(scaled).size() == 2U);
  scaled[0].rms = 2000 / 1024.0;
  scaled[1].rms = 3000 / 1024.0;
  BOOST_TEST(found(scaled) == Names{}, boost::test_tools::per_element());
}

/// The one whose scale is wrong is found, and not its neighbours.
BOOST_AUTO_TEST_CASE(scales_that_are_too_small_or_too_large_are_outliers_at_any_place) {
  for (const double wrong : {1e-4, 1e4}) {
    for (std::size_t count = 2; count <= 6; ++count) {
      for (std::size_t at = 0; at < count; ++at) {
        std::vector<Facts> layers(count, facts_of("Linear"));
        for (std::size_t i = 0; i < count; ++i) {
          layers[i].path = std::to_string(i);
          layers[i].std = (i == at ? wrong : 1) * (1 + 0.01 * static_cast<double>(i));
        }
        const std::vector<Finding> findings = check(layers);
        BOOST_TEST_CONTEXT(wrong << ' ' << count << ' ' << at) {
          BOOST_TEST_REQUIRE(findings.size() == 1U);
          // Of two nothing tells which is wrong.
          BOOST_TEST(findings.front().path == std::to_string(count == 2 ? 1 : at));
        }
      }
    }
  }
  // Scales that grow from layer to layer have no outlier.
  std::vector<Facts> layers(5, facts_of("Linear"));
  for (std::size_t i = 0; i < 5; ++i) layers[i].std = std::pow(50, static_cast<double>(i));
  BOOST_TEST(found(layers) == Names{}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(values_that_are_all_the_same_have_no_variance) {
  Rules rules;
  rules.set("tensor_variance", true);
  Facts facts = facts_of("Linear");
  facts.std = 0;
  const auto findings = check({facts}, rules);
  BOOST_TEST_REQUIRE(findings.size() == 1U);
  BOOST_TEST(findings.front().sentence == "all values are the same");
  facts.count = 1;
  BOOST_TEST(check({facts}, rules).empty());
  facts.std = 1e-9;
  BOOST_TEST(check({facts}, rules).empty());
}

/// What a LogHistogram tells of outputs.
Facts facts_of_outputs(const char* type, const at::Tensor& y) {
  torchtap::reductions::LogHistogram histogram(torchtap::reductions::LogHistogramOptions().over_all(true));
  histogram.update(y);
  Facts facts = facts_of(type);
  facts.count = y.numel();
  facts.zeros = histogram.zeros().item<double>();
  facts.min = y.min().item<double>();
  facts.max = y.max().item<double>();
  facts.rms = y.square().mean().sqrt().item<double>();
  const auto counts = histogram.counts(), low = histogram.low(), high = histogram.high();
  for (std::int64_t i = 0; i < counts.numel(); ++i)
    facts.bins.push_back(
        {low[i].item<double>(), high[i].item<double>(), counts[i].to(at::kDouble).item<double>()});
  return facts;
}

BOOST_AUTO_TEST_CASE(saturation_is_read_from_the_bins_of_a_log_histogram) {
  const auto share_of = [](const char* type, const at::Tensor& values) -> double {
    const auto findings = check({facts_of_outputs(type, values)});
    return findings.empty() ? 0 : findings.front().value;
  };
  at::manual_seed(3);
  const at::Tensor x = at::randn({20000}, at::kDouble);
  BOOST_TEST(share_of("Sigmoid", x.mul(0.1).add(12).sigmoid()) > 0.99);  // 0.99999, inside of a bin
  BOOST_TEST(share_of("Sigmoid", x.mul(0.1).sub(12).sigmoid()) == 1);    // at 0
  BOOST_TEST(share_of("Sigmoid", at::zeros({100}, at::kDouble)) == 1);   // underflow
  BOOST_TEST(share_of("Sigmoid", x.mul(0.1).add(3).sigmoid()) == 0);     // 0.95: not yet
  BOOST_TEST(share_of("Sigmoid", x.sigmoid()) == 0);
  for (const double steep : {5.0, 20.0, 50.0, 300.0}) {
    const at::Tensor y = x.mul(steep).tanh();
    const double exact = y.abs().gt(0.97).to(at::kDouble).mean().item<double>();
    const double got = share_of("Tanh", y);
    BOOST_TEST_CONTEXT("steep " << steep << ", exact " << exact << ", got " << got) {
      if (exact < 0.9) BOOST_TEST(got == 0);
      if (exact > 0.95) BOOST_TEST(std::abs(got - exact) < 0.03);
    }
  }
}

/// Of logits with this mean and deviation, as layers saturate in practice.
BOOST_AUTO_TEST_CASE(saturation_by_bins_is_found_or_said_to_be_unknown) {
  at::manual_seed(4);
  const auto judge = [&](const char* type, double mean, double deviation) {
    const at::Tensor x = at::randn({20000}, at::kDouble).mul(deviation).add(mean);
    const bool both = std::string(type) == "Tanh";
    const at::Tensor y = both ? x.tanh() : x.sigmoid();
    const at::Tensor outside = both ? y.abs().gt(0.97) : y.lt(0.015).logical_or(y.gt(0.985));
    const double exact = outside.to(at::kDouble).mean().item<double>();
    const Facts facts = facts_of_outputs(type, y);
    const auto findings = check({facts}), open = undecided({facts});
    BOOST_TEST_CONTEXT(type << " of N(" << mean << ", " << deviation << "), exact " << exact) {
      if (exact > 0.9) BOOST_TEST((!findings.empty() || !open.empty()));
      if (exact > 0.96) BOOST_TEST((!findings.empty() || deviation < 0.3));
      if (exact < 0.88) BOOST_TEST(findings.empty());
      if (!findings.empty()) BOOST_TEST(std::abs(findings.front().value - exact) < 0.08);
      BOOST_TEST((findings.empty() || open.empty()));
    }
  };
  for (const auto& [mean, deviation] : {std::pair(0.0, 20.0),
                                        {0.0, 35.0},
                                        {0.0, 50.0},
                                        {0.0, 150.0},
                                        {5.0, 0.5},
                                        {5.5, 1.0},
                                        {6.0, 1.0},
                                        {7.0, 1.0},
                                        {8.0, 2.0},
                                        {-6.0, 1.0},
                                        {5.0, 10.0},
                                        {20.0, 10.0},
                                        {4.2, 0.3}})
    judge("Sigmoid", mean, deviation);
  for (const auto& [mean, deviation] : {std::pair(0.0, 5.0),
                                        {0.0, 15.0},
                                        {0.0, 20.0},
                                        {0.0, 40.0},
                                        {2.5, 0.2},
                                        {2.5, 0.4},
                                        {3.0, 0.5},
                                        {4.0, 1.0},
                                        {-3.0, 0.5}})
    judge("Tanh", mean, deviation);
  // Zeros of which channels are not known.
  Facts relu = facts_of("ReLU");
  relu.count = 1000;
  relu.zeros = 600;
  BOOST_TEST(undecided({relu}).size() == 1U);
  relu.inactive_channels = 0.2;
  BOOST_TEST(undecided({relu}).empty());
}

BOOST_AUTO_TEST_CASE(sentences_have_units_for_people) {
  const auto sentence = [](const Facts& facts) {
    const auto findings = check({facts});
    return findings.empty() ? "" : findings.front().sentence;
  };
  Facts facts = facts_of("ReLU");
  facts.count = 12'800'000;
  facts.zeros = 12'761'600;
  BOOST_TEST(sentence(facts) == "99.7 % of 12,800,000 values are zero");
  facts.zeros = 12'799'999;
  BOOST_TEST(sentence(facts) == "more than 99.9 % of 12,800,000 values are zero");
  facts.zeros = 0;
  facts.nan = 3;
  facts.count = 1000;
  BOOST_TEST(sentence(facts) == "3 NaN of 1,000 values");
  facts.inf = 1;
  facts.count = 999;
  BOOST_TEST(sentence(facts) == "3 NaN, 1 infinity of 999 values");
  facts.count.reset();
  BOOST_TEST(sentence(facts) == "NaN and infinities among the values");
  Facts gradient = facts_of("Linear", Tensor::gradient);
  gradient.rms = 3e-9;
  BOOST_TEST(sentence(gradient) == "rms 3e-09 is less than 1e-07");
  const auto at_zero = check({[] {
    Facts one = facts_of("ReLU");
    one.count = one.zeros = 4096;
    return one;
  }()});
  BOOST_TEST(at_zero.front().sentence == "all 4,096 values are zero");
  BOOST_TEST(at_zero.back().sentence == "100 % of 4,096 values are zero");
}

BOOST_AUTO_TEST_CASE(a_program_adds_rules_of_its_own) {
  Rules rules;
  rules.add("hot", [](const Facts& facts) -> std::optional<std::string> {
    if (facts.max.value_or(0) < 10) return std::nullopt;
    return "the largest is " + std::to_string(static_cast<int>(*facts.max));
  });
  Facts facts = facts_of("Linear");
  facts.max = 9;
  BOOST_TEST(found(facts, rules) == Names{}, boost::test_tools::per_element());
  facts.max = 11;
  facts.slot = 2;
  const auto findings = check({facts}, rules);
  BOOST_REQUIRE(findings.size() == 1U);
  BOOST_TEST(findings[0].rule == "hot");
  BOOST_TEST(findings[0].path == "layer");
  BOOST_TEST(findings[0].slot == 2);
  BOOST_TEST(findings[0].sentence == "the largest is 11");
  const auto none = [](const Facts&) -> std::optional<std::string> { return std::nullopt; };
  BOOST_CHECK_EXCEPTION(rules.add("drift", none), c10::ValueError,
                        torchtap_test::says({"Rules::add", "\"drift\"", "another name"}));
  BOOST_CHECK_EXCEPTION(rules.add("", none), c10::ValueError, torchtap_test::says({"Rules::add"}));
  BOOST_CHECK_EXCEPTION(rules.add("null", nullptr), c10::ValueError,
                        torchtap_test::says({"\"null\"", "function"}));
}

BOOST_AUTO_TEST_CASE(the_page_has_the_catalogue) {
  std::ifstream file(TORCHTAP_TEST_RULES_PAGE);
  std::vector<std::string> rows, want;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `", 0) == 0) rows.push_back(line);
  }
  for (const auto& info : torchtap::rules::catalogue()) {
    std::ostringstream keys;
    keys << (info.on ? "" : "*off*");
    for (const auto& [key, value] : info.keys)
      keys << (keys.str().empty() ? "" : ", ") << '`' << key << "` " << value;
    const std::string text = keys.str();
    want.push_back("| `" + info.name + "` | " + info.of + " | " + info.holds + " | " +
                   (text.empty() ? "–" : text) + " | " + info.source + " |");
  }
  BOOST_TEST(rows == want, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
