// What waits for its partner, which call it is paired with, and when it is let go.
#include <boost/test/unit_test.hpp>
#include <malloc.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/hooked.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(waiting)

using namespace torchtap::recorders;
using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap_test::contains;
using torchtap_test::error_of;

struct AddImpl : torch::nn::Module {
  explicit AddImpl(double by) : by(by) {}
  at::Tensor forward(const at::Tensor& x) { return x + by; }
  double by;
};
TORCHTAP_MODULE(Add);

/// Calls its modules as `order` says, call k of each with x + k / 8: "ab!" calls a, then b, then throws.
struct PlayImpl : torch::nn::Module {
  Add a = register_module("a", Add(1000));
  Add b = register_module("b", Add(2000));
  Add c = register_module("c", Add(3000));
  std::string order = "ab", if_odd;
  std::atomic<bool> finished{false};

  at::Tensor forward(const at::Tensor& x) {
    const bool odd = std::fmod(x[0].item<double>(), 2) == 1;
    const std::string& calls = odd && !if_odd.empty() ? if_odd : order;
    int of_a = 0, of_b = 0, of_c = 0;
    finished = false;
    for (const char call : calls) {
      if (call == '!') throw std::runtime_error("a forward that fails");
      if (call == 'a') a(x + of_a++ / 8.0);
      if (call == 'b') b(x + of_b++ / 8.0);
      if (call == 'c') c(x + of_c++ / 8.0);
      if (call == 'A') a(x + of_a++ / 8.0).fill_(-1);  // changed in place afterwards
    }
    finished = true;
    return x;
  }
};
TORCHTAP_MODULE(Play);

namespace {

/// The pairs that a reduction was given, as their first numbers.
struct Pairs {
  std::mutex mutex;
  std::vector<std::pair<double, double>> all;

  auto reduction() {
    return map(
        "theirs",
        [this](const at::Tensor& x, const at::Tensor& y) {
          const std::lock_guard lock(mutex);
          all.emplace_back(x.flatten()[0].item<double>(), y.flatten()[0].item<double>());
          return x;
        },
        Count());
  }
};

RecorderOptions beside(Pairs& pairs, Companion companion) {
  return RecorderOptions().with("theirs", std::move(companion)).reduction(pairs.reduction());
}

at::Tensor number(double value) {
  return at::full({2}, value, at::kDouble);
}

void play(Play& net, const std::string& order, double x) {
  net->order = order;
  try {
    net(number(x));
  } catch (const std::runtime_error&) {
    BOOST_TEST(order.back() == '!');
  }
}

std::int64_t calls(const std::string& order, char module) {
  return std::count(order.begin(), order.end(), module);
}

}  // namespace

/// Call k with call k in whichever order; the rest is unmatched and gone before the next forward.
BOOST_AUTO_TEST_CASE(call_k_is_paired_with_call_k_and_nothing_stays) {
  Play net;
  for (const std::string order :
       {"",     "ab", "ba", "aabb", "bbaa", "abba", "abab", "baab", "aab", "abb",  "bba", "abbb",
        "aaab", "a",  "b",  "aa",   "bb",   "ab!",  "ba!",  "a!",   "b!",  "aab!", "!",   "aabba!"}) {
    Pairs pairs;
    ForwardOutput recorder(beside(pairs, output("../b")));
    recorder.attach(net, torchtap::selectors::names("a"));
    const std::int64_t a = calls(order, 'a'), b = calls(order, 'b'), matched = std::min(a, b);
    BOOST_TEST_CONTEXT("calls " << order) {
      play(net, order, 50);
      BOOST_TEST(recorder[0].samples() == matched);
      BOOST_TEST(recorder[0].unmatched() == a + b - 2 * matched);
      BOOST_TEST(recorder[0].events() == a);
      BOOST_TEST(recorder[0].note().empty() == (a == b));
      play(net, "ba", 60);
      BOOST_TEST(recorder[0].samples() == matched + 1);
      BOOST_TEST(recorder[0].unmatched() == a + b - 2 * matched);
      BOOST_TEST(pairs.all.size() == static_cast<std::size_t>(matched + 1));
      std::sort(pairs.all.begin(), pairs.all.end());
      for (std::int64_t k = 0; k < matched; ++k) {
        const auto& [x, y] = pairs.all[static_cast<std::size_t>(k)];
        BOOST_TEST(x == 1050 + static_cast<double>(k) / 8);
        BOOST_TEST(y == 2050 + static_cast<double>(k) / 8);
      }
      BOOST_TEST((pairs.all.back() == std::pair(1060.0, 2060.0)));
    }
  }
}

/// A sample waits until the last of several companions is there, in any order; one pair is left out at once.
BOOST_AUTO_TEST_CASE(two_companions_are_waited_for) {
  Play net;
  std::string order = "abc";
  do {
    ForwardOutput recorder(RecorderOptions()
                               .with("b", output("../b"))
                               .with("c", output("/c").map([](const at::Tensor& y) { return y * 2; }))
                               .reduction(joint("b", Any(joint("c", Sum(SumOptions().over({0})))))));
    recorder.attach(net, torchtap::selectors::names("a"));
    BOOST_TEST_CONTEXT("calls " << order) {
      play(net, order, 5);
      BOOST_TEST(recorder[0].samples() == 1);
      // [2] numbers are two rows: a, b and c of each, summed.
      BOOST_TEST(
          recorder[0].tensor("value").equal(at::tensor({2 * 1005.0, 2 * 2005.0, 4 * 3005.0}, at::kDouble)));
      std::string without = order;
      without.erase(without.find('c'), 1);
      play(net, without, 5);
      BOOST_TEST(recorder[0].samples() == 1);
      BOOST_TEST(recorder[0].unmatched() == 1);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

/// A forward of one model is one of the other in the same context. "A" and "B" are forwards of the two.
BOOST_AUTO_TEST_CASE(forwards_of_two_models_in_one_context) {
  struct Case {
    const char *forwards, *calls;                  // calls of each model's own module in a forward
    std::vector<std::pair<double, double>> pairs;  // of forwards, by their number
    std::int64_t unmatched;
  };
  const std::vector<Case> cases{{"AB", "1", {{0, 1}}, 0},
                                {"BA", "1", {{1, 0}}, 0},
                                {"A", "1", {}, 1},
                                {"B", "1", {}, 1},
                                {"AA", "1", {}, 2},
                                {"BB", "1", {}, 2},
                                {"AAB", "1", {{0, 2}}, 1},
                                {"BBA", "1", {{2, 0}}, 1},
                                {"AABB", "1", {{0, 2}, {1, 3}}, 0},
                                {"BBAA", "1", {{2, 0}, {3, 1}}, 0},
                                {"ABAB", "1", {{0, 1}, {2, 3}}, 0},
                                {"ABBA", "1", {{0, 1}, {3, 2}}, 0},
                                {"AB", "2", {{0, 1}, {0, 1}}, 0},
                                {"AAB", "2", {{0, 2}, {0, 2}}, 2},
                                {"AB!", "1", {{0, 1}}, 0},
                                {"A!B", "1", {}, 1},
                                {"B!", "1", {}, 1}};
  Play first, second;
  for (const Case& one : cases) {
    Pairs pairs;
    ForwardOutput recorder(beside(pairs, output(second, "/b")));
    recorder.attach(first, torchtap::selectors::names("a"));
    BOOST_TEST_CONTEXT("forwards " << one.forwards << ", " << one.calls << " calls in each") {
      for (int again = 1; again <= 2; ++again) {  // nothing is left for the next context
        pairs.all.clear();
        const bool twice = *one.calls == '2';
        try {
          const Context together;
          double x = 0;
          for (const char of : std::string(one.forwards)) {
            if (of == '!') throw std::runtime_error("between two forwards");
            if (of == 'A') play(first, twice ? "aa" : "a", x++);
            if (of == 'B') play(second, twice ? "bb" : "b", x++);
          }
        } catch (const std::runtime_error&) {
        }
        BOOST_TEST(recorder[0].unmatched() == again * one.unmatched);
        BOOST_TEST(recorder[0].samples() == again * static_cast<std::int64_t>(one.pairs.size()));
        BOOST_REQUIRE(pairs.all.size() == one.pairs.size());
        for (std::size_t i = 0; i < one.pairs.size(); ++i) {
          BOOST_TEST(std::floor(pairs.all[i].first) == 1000 + one.pairs[i].first);
          BOOST_TEST(std::floor(pairs.all[i].second) == 2000 + one.pairs[i].second);
          BOOST_TEST(pairs.all[i].first - std::floor(pairs.all[i].first) ==
                     pairs.all[i].second - std::floor(pairs.all[i].second));
        }
      }
    }
  }
  // Without a context, the first event of either says so, and leaves nothing.
  Pairs pairs;
  ForwardOutput recorder(beside(pairs, output(second, "/b")));
  recorder.attach(first, torchtap::selectors::names("a"));
  for (int again = 0; again < 2; ++again) {
    BOOST_TEST(contains(error_of([&] { first(number(1)); }), "run all inside of one core::Context"));
    BOOST_TEST(contains(error_of([&] { second(number(1)); }), "run all inside of one core::Context"));
  }
  BOOST_TEST(recorder[0].samples() + recorder[0].unmatched() == 0);
  first->order = "a";
  {
    const Context together;
    play(second, "b", 7);
    play(first, "a", 8);
  }
  BOOST_TEST((pairs.all == std::vector<std::pair<double, double>>{{1008, 2007}}));
  BOOST_TEST(recorder[0].unmatched() == 0);
}

/// Conditions and transforms are asked for the sample alone, once, when it comes.
BOOST_AUTO_TEST_CASE(conditions_and_transforms_see_the_sample_before_it_waits) {
  Play net;
  Pairs pairs;
  std::string seen;
  ForwardOutput recorder(beside(pairs, output("../b").map([&](const at::Tensor& y) {
                           seen += 'm';
                           return y * 2;
                         }))
                             .condition([&](const Sample& sample) {
                               seen += 'c';
                               return sample.call_index() != 1;
                             })
                             .transform([&](const at::Tensor& x) {
                               seen += 't';
                               return x.neg();
                             }));
  recorder.attach(net, torchtap::selectors::names("a"));
  play(net, "aaabbb", 10);  // the second is refused
  BOOST_TEST(seen == "ctcctmmm");
  BOOST_TEST((pairs.all == std::vector<std::pair<double, double>>{{-1010, 4020}, {-1010.25, 4020.5}}));
  BOOST_TEST(recorder[0].unmatched() == 0);
  BOOST_TEST(recorder[0].events() == 3);
  seen.clear();
  play(net, "bababa", 10);
  BOOST_TEST(seen == "mctmcmct");
  BOOST_TEST(recorder[0].samples() == 4);
  BOOST_TEST(recorder[0].unmatched() == 0);
  play(net, "A", 10);
  play(net, "Ab", 20);  // what waits is a copy
  BOOST_TEST((pairs.all.back() == std::pair(-1020.0, 4040.0)));
  BOOST_TEST(recorder[0].unmatched() == 1);
}

BOOST_AUTO_TEST_CASE(a_forward_is_ended_when_the_last_pair_is_folded) {
  for (const std::string order : {"ab", "ba", "acb", "cba"}) {
    Play net;
    Pairs pairs;
    ForwardOutput recorder(beside(pairs, output("../b")));
    recorder.attach(net, torchtap::selectors::names("a"));
    BOOST_TEST_CONTEXT("calls " << order) {
      net->order = order + "c";
      BOOST_TEST(recorder.until_recorded([&] { net(number(4)); }));
      BOOST_TEST(!net->finished);
      BOOST_TEST((pairs.all == std::vector<std::pair<double, double>>{{1004, 2004}}));
      net->order = "ac";
      BOOST_TEST(!recorder.until_recorded([&] { net(number(4)); }));
      BOOST_TEST(net->finished);
      BOOST_TEST(recorder[0].samples() == 1);
      BOOST_TEST(recorder[0].unmatched() == 1);
    }
  }
}

/// Also for a sanitizer of threads: half of them have their samples first.
BOOST_AUTO_TEST_CASE(four_threads_of_200_forwards_in_either_order_pair_their_own) {
  Play net, other;
  net->order = "aabb";
  net->if_odd = "bbaaa";
  other->order = "b";
  Pairs pairs, apart;
  ForwardOutput recorder(beside(pairs, output("../b"))), between(beside(apart, output(other, "/b"))),
      covariance(RecorderOptions().with("theirs", output("../b")).reduction(CrossCovariance("theirs")));
  for (auto* const one : {&recorder, &between, &covariance})
    one->attach(net, torchtap::selectors::names("a"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const at::Tensor x = number(t * 200 + i);
        const Context together;
        if (i % 4 < 2) other(x);
        net(x);
        if (i % 4 >= 2) other(x);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(recorder[0].samples() == 1600);  // two in each forward
  BOOST_TEST(recorder[0].unmatched() == 400);
  BOOST_TEST(between[0].samples() == 800);  // call 0 alone
  BOOST_TEST(between[0].unmatched() == 400 * 1 + 400 * 2);
  CrossCovariance want("theirs");
  for (auto* const all : {&pairs.all, &apart.all}) {
    std::sort(all->begin(), all->end());
    const std::size_t each = all == &pairs.all ? 2 : 1;
    BOOST_REQUIRE(all->size() == 800 * each);
    for (std::size_t i = 0; i < all->size(); ++i) {
      const double x = static_cast<double>(i / each) + static_cast<double>(i % each) / 8;
      BOOST_TEST(((*all)[i] == std::pair(1000 + x, 2000 + x)));
      if (each == 1) continue;
      const Context named("theirs", number(2000 + x));
      want.update(number(1000 + x));
    }
  }
  BOOST_TEST(covariance[0].samples() == 1600);
  BOOST_TEST(covariance[0].unmatched() == 400);
  BOOST_TEST(torchtap_test::close(covariance[0].tensor("covariance"), want.covariance(), 1e-12));
}

namespace {

/// Transforms that hand out tensors of their own, and know which of them are still alive.
struct Alive {
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> all;

  at::Tensor operator()(const at::Tensor& x) {
    const at::Tensor own = x.clone();
    all.emplace_back(c10::intrusive_ptr<c10::TensorImpl>(own.getIntrusivePtr()));
    return own;
  }
  std::int64_t count() const {
    return std::count_if(all.begin(), all.end(), [](const auto& one) { return !one.expired(); });
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(samples_and_companions_that_wait_are_gone_when_their_forward_or_context_ends) {
  Play net, other;
  other->order = "b";
  Alive alive;
  Pairs pairs;
  const auto tracked = [&](Companion companion) {
    return beside(pairs, companion.map(std::ref(alive))).transform(std::ref(alive));
  };
  ForwardOutput within(tracked(output("../b"))), between(tracked(output(other, "/b")));
  within.attach(net, torchtap::selectors::names("a"));
  std::int64_t most = 0;
  const auto watch =
      torchtap::hooks::attach(*net->c, torchtap::hooks::Kind::forward_output,
                              [&](torchtap::hooks::Event&) { most = std::max(most, alive.count()); });
  for (const std::string order : {"aaac", "bbc", "abc", "aaac!", "bc!", "aabc!"}) {
    BOOST_TEST_CONTEXT("calls " << order) {
      most = 0;
      const std::int64_t waits = std::abs(calls(order, 'a') - calls(order, 'b'));
      play(net, order, 1);
      BOOST_TEST(most == waits);
      BOOST_TEST(alive.count() == 0);
    }
  }
  within.detach();
  between.attach(net, torchtap::selectors::names("a"));
  for (const std::string order : {"aac", "aac!"}) {
    const std::int64_t unmatched = between[0].unmatched();
    {
      const Context together;
      play(net, order, 1);
      BOOST_TEST(alive.count() == 2);
      other(number(1));
      BOOST_TEST(alive.count() == 1);
    }
    BOOST_TEST(alive.count() == 0);
    BOOST_TEST(between[0].unmatched() == unmatched + 1);
  }
}

#ifdef TORCHTAP_TEST_TORCHSCRIPT
/// What the allocator has handed out, in kilobytes, does not grow over forwards that leave something waiting.
BOOST_AUTO_TEST_CASE(forwards_do_not_grow) {
  torch::NoGradGuard no_grad;
  Play net, other;
  other->order = "b";
  torch::nn::Sequential list(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  torch::jit::Module script("Script"), first("First"), second("Second");
  first.define("def forward(self, x):\n    return x + 1\n");
  second.define("def forward(self, x):\n    return x + 2\n");
  script.register_module("first", first);
  script.register_module("second", second);
  script.define("def forward(self, x):\n    return self.first.forward(x)\n");  // never the second
  const auto sums = [](Companion companion) {
    return RecorderOptions()
        .with("theirs", std::move(companion))
        .reduction(joint("theirs", Sum(SumOptions().over({0}))));
  };
  ForwardOutput within(sums(output("../b"))), between(sums(output(other, "/b"))), listed(sums(output("/1"))),
      scripted(sums(output("/second")));
  within.attach(net, torchtap::selectors::names("a"));
  between.attach(net, torchtap::selectors::names("a"));
  listed.attach(list, torchtap::selectors::names("0"));
  scripted.attach(script, torchtap::selectors::names("first"));
  const at::Tensor x = number(3), row = at::ones({1, 2});
  std::optional<Context> labels;
  const auto forwards = [&](int n) {
    for (int i = 0; i < n; ++i) {
      {
        const Context together;
        net->order = i % 3 == 0 ? "aab" : i % 3 == 1 ? "bba" : "a";
        net(x);
        if (i % 2 == 0) other(x);
      }
      if (i % 16 == 0) {
        const Context together;
        play(net, "aab!", 1);
      }
      list->forward(row);
      script.forward({row});
      const Context named("labels", x);
      list->forward(row);
      script.forward({row});
    }
  };
  for (const bool inside : {false, true}) {  // of one context that lives as long
    BOOST_TEST_CONTEXT((inside ? "inside" : "outside") << " of a context") {
      if (inside) labels.emplace("epoch", x);
      forwards(300);
      const std::size_t before = ::mallinfo2().uordblks;
      forwards(8000);
      const std::size_t after = ::mallinfo2().uordblks;
      BOOST_TEST(after < before + 20000);  // bytes: less than three in each round
    }
  }
  labels.reset();
  BOOST_TEST(within[0].unmatched() > 0);
  BOOST_TEST(between[0].unmatched() > 0);
  BOOST_TEST(listed[0].unmatched() == 0);
  BOOST_TEST(scripted[0].unmatched() > 16000);
}
#endif

BOOST_AUTO_TEST_CASE(an_alias_that_is_changed_while_it_waits_is_an_error) {
  Play net;
  for (const bool as_alias : {false, true}) {
    Pairs pairs;
    ForwardOutput recorder(beside(pairs, output("../b")).capture(as_alias ? Capture::alias : Capture::copy));
    recorder.attach(net, torchtap::selectors::names("a"));
    play(net, "ab", 1);
    BOOST_TEST((pairs.all == std::vector<std::pair<double, double>>{{1001, 2001}}));
    net->order = "Ab";
    const auto error = error_of([&] { net(number(2)); });
    BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "changed in place") == as_alias);
    if (as_alias) BOOST_TEST(pairs.all.size() == 1);
  }
}

#ifdef TORCHTAP_TEST_TORCHSCRIPT
/// The end of a forward in TorchScript is not seen.
BOOST_AUTO_TEST_CASE(what_waited_for_a_recorder_that_is_gone_is_gone_with_the_next_forward) {
  torch::jit::Module script("Script"), first("First"), second("Second");
  first.define("def forward(self, x):\n    return x + 1\n");
  second.define("def forward(self, x):\n    return x + 2\n");
  script.register_module("first", first);
  script.register_module("second", second);
  script.define("def forward(self, x):\n    return self.first.forward(x)\n");
  Alive alive;
  Pairs pairs;
  for (int i = 0; i < 5; ++i) {
    ForwardOutput recorder(beside(pairs, output("/second")).transform(std::ref(alive)));
    recorder.attach(script, torchtap::selectors::names("first"));
    script.forward({number(i)});
  }
  BOOST_TEST(alive.count() <= 1);
}
#endif

/// A context around an epoch does not make pairs of two batches, each of which has a context of its own.
BOOST_AUTO_TEST_CASE(an_inner_context_ends_its_pairs) {
  Play first, second;
  first->order = "a";
  second->order = "b";
  Pairs pairs;
  ForwardOutput recorder(beside(pairs, output(second, "/b")));
  recorder.attach(first, torchtap::selectors::names("a"));
  const Context epoch("domain", number(0));
  {
    const Context batch;
    second(number(1));  // and the forward of the first model failed
  }
  {
    const Context batch;
    first(number(2));
    second(number(2));
  }
  BOOST_TEST((pairs.all == std::vector<std::pair<double, double>>{{1002, 2002}}));
  BOOST_TEST(recorder[0].unmatched() == 1);
}

/// Merging in one process adds them up; for ranks they are no event that came after the data was taken.
BOOST_AUTO_TEST_CASE(a_merge_keeps_count_of_what_found_no_partner) {
  Play net;
  Pairs pairs;
  ForwardOutput one(beside(pairs, output("../b"))), other(beside(pairs, output("../b")));
  one.attach(net, torchtap::selectors::names("a"));
  play(net, "aab", 1);
  one.detach();
  other.attach(net, torchtap::selectors::names("a"));
  play(net, "abb", 1);
  play(net, "a", 1);
  one.merge(other);
  BOOST_TEST(one[0].samples() == 2);
  BOOST_TEST(one[0].unmatched() == 3);
  BOOST_TEST(one[0].events() == 4);
}

/// Names alone make no frame for pairs: both forwards are inside of the context without names.
BOOST_AUTO_TEST_CASE(each_forward_may_have_names_of_its_own) {
  Play first, second;
  first->order = "a";
  second->order = "b";
  Pairs pairs;
  ForwardOutput recorder(beside(pairs, output(second, "/b")));
  recorder.attach(first, torchtap::selectors::names("a"));
  const auto run = [](Play& net, double x) {
    const Context named("mask", number(0));
    net(number(x));
  };
  {
    const Context together;
    run(first, 1);
    run(second, 1);
  }
  BOOST_TEST((pairs.all == std::vector<std::pair<double, double>>{{1001, 2001}}));
  {
    const Context batch("label", number(0));  // the names of the forwards hide it
    run(first, 2);
    run(second, 2);
  }
  BOOST_TEST(pairs.all.size() == 1);
  BOOST_TEST(recorder[0].unmatched() == 2);
}

BOOST_AUTO_TEST_SUITE_END()
