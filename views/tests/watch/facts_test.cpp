// What operations read, compared with what changes when their arguments do.
#include <ATen/core/dispatch/Dispatcher.h>
#include <boost/test/unit_test.hpp>
#include <torch/library.h>
#include <torch/torch.h>

#include <functional>
#include <set>

#include <torchtap/operations/operations.hpp>
#include <torchtap/views/watch/facts.hpp>

BOOST_AUTO_TEST_SUITE(facts)

namespace {

namespace ops = torchtap::operations;

/// What one operation said and returned.
struct Seen {
  std::string name;
  std::vector<bool> reads;
  std::vector<bool> tensors;  // which arguments are, or hold, some
  std::vector<at::Tensor> results;
};

/// What operations are called with.
struct Given {
  at::Tensor x = torch::arange(1, 7, at::kFloat).view({2, 3}), y = x * 2, number = torch::ones({});
};
using Call = std::function<void(Given&)>;

/// Runs the first operation that `call` calls, with other values in one of its arguments.
Seen run(const Call& call, std::size_t changed) {
  Given given;
  Seen seen;
  torch::manual_seed(0);
  const ops::Scope scope([&](ops::Event& event) {
    if (!seen.name.empty()) return;
    seen.name = event.name();
    seen.reads = torchtap::views::watch::reads_of(event.schema());
    std::vector<at::Tensor> written;
    const auto arguments = event.arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      seen.tensors.push_back(false);
      ops::for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
        seen.tensors.back() = true;
        if (i == changed) tensor.fill_(0.25);
        if (event.writes(i)) written.push_back(tensor);
      });
    }
    event.run();
    for (const c10::IValue& result : event.results()) {
      ops::for_each_tensor(result, [&](const at::Tensor& tensor) { written.push_back(tensor); });
    }
    for (const at::Tensor& tensor : written) seen.results.push_back(tensor.clone());
  });
  call(given);
  return seen;
}

void boxed(const char* name, std::vector<c10::IValue> arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&arguments);
}

BOOST_AUTO_TEST_CASE(an_argument_is_read_if_its_values_play_a_part) {
  const std::vector<Call> calls{
      [](Given& given) { given.x.zero_(); },
      [](Given& given) { given.x.fill_(1); },
      [](Given& given) { given.x.fill_(given.number); },
      [](Given& given) { given.x.copy_(given.y); },
      [](Given& given) { given.x.normal_(); },
      [](Given& given) { given.x.uniform_(); },
      [](Given& given) { given.x.random_(); },
      [](Given& given) { given.x.bernoulli_(0.5); },
      [](Given& given) { given.x.exponential_(); },
      [](Given& given) { given.x.geometric_(0.5); },
      [](Given& given) { given.x.cauchy_(); },
      [](Given& given) { given.x.log_normal_(); },
      [](Given& given) { given.x.set_(given.y); },
      [](Given& given) {
        boxed("aten::set_data", {given.x, given.y});
      },
      [](Given& given) {
        at::_foreach_zero_({given.x, given.y});
      },
      [](Given& given) {
        at::_foreach_add_({given.x, given.y}, 1);
      },
      [](Given& given) { at::mul_out(given.x, given.y, given.number); },
      [](Given& given) { at::zeros_like(given.x); },
      [](Given& given) { at::full_like(given.x, 3); },
      [](Given& given) { at::rand_like(given.x); },
      [](Given& given) { given.x.new_zeros({2}); },
      [](Given& given) { given.x.new_full({2}, 3); },
      [](Given& given) { given.x.expand_as(given.y); },
      [](Given& given) { given.x.view_as(given.y); },
      [](Given& given) { given.x.reshape_as(given.y); },
      [](Given& given) { given.x.type_as(given.y); },
      [](Given& given) { given.x.to(given.y); },
      [](Given& given) { given.x.resize_as_(given.y); },
      [](Given& given) { given.x.add(given.y); },
      [](Given& given) { given.x.mul_(given.y); },
      [](Given& given) { given.x.clamp_min_(3); },
      [](Given& given) {
        given.x.view({3, 2});
      },
      [](Given& given) { given.x.detach(); },
      [](Given& given) {
        at::cat({given.x, given.y});
      },
      [](Given& given) { given.x.fill_diagonal_(2); },
  };
  int unread = 0;
  for (const auto& call : calls) {
    const std::size_t none = 99;
    const Seen first = run(call, none);
    BOOST_REQUIRE(!first.results.empty());
    for (std::size_t i = 0; i < first.tensors.size(); ++i) {
      if (!first.tensors[i]) continue;
      const Seen other = run(call, i);
      bool same = true;
      for (std::size_t k = 0; k < first.results.size(); ++k) {
        same = same && at::equal(first.results[k], other.results[k]);
      }
      BOOST_TEST(first.reads[i] == !same, first.name << ", argument " << i);
      unread += same ? 1 : 0;
    }
  }
  BOOST_TEST(unread > 25);
}

BOOST_AUTO_TEST_CASE(an_operation_does_not_get_what_was_known_of_one_that_was_unloaded) {
  torchtap::views::watch::PerOperation<std::string> known;
  std::set<const void*> places;
  bool again = false;
  for (int i = 0; i < 50 && !again; ++i) {
    const std::string name = "torchtap_facts_" + std::to_string(i);
    torch::Library library(torch::Library::DEF, name, c10::nullopt, __FILE__, __LINE__);
    library.def("same(Tensor x) -> Tensor", [](const at::Tensor& x) { return x.clone(); });
    const auto operation = c10::Dispatcher::singleton().findSchemaOrThrow((name + "::same").c_str(), "");
    std::vector<c10::IValue> stack{at::ones({2})};
    again = !places.insert(&operation.schema()).second;
    const ops::Scope scope([&](ops::Event& event) {
      for (int times = 0; times < 2; ++times) {
        BOOST_TEST(known.of(event, [&] { return event.name(); }) == name + "::same");
      }
    });
    operation.callBoxed(&stack);
  }
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory from being used again
  BOOST_TEST(again);          // or this has tested nothing
#endif
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
