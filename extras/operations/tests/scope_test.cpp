// Scopes: what they see, what their callbacks may change, and what is left of them.
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <boost/test/unit_test.hpp>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <future>
#include <map>
#include <mutex>
#include <thread>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/operations/operations.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/support.hpp"

namespace {

namespace ops = torchtap::operations;
using torchtap_test::says;
using Names = std::vector<std::string>;

/// The names of the operations that `function` calls.
template <class Function>
Names seen(Function&& function, ops::Level level = ops::Level::program) {
  Names names;
  std::mutex mutex;
  const ops::Scope scope(
      [&](ops::Event& event) {
        const std::lock_guard lock(mutex);
        names.push_back(event.name());
      },
      level);
  function();
  return names;
}

BOOST_AUTO_TEST_SUITE(scope)

BOOST_AUTO_TEST_CASE(sees_what_the_program_calls_and_not_what_is_called_inside) {
  const at::Tensor x = torch::rand({2, 3, 8, 8}), w = torch::rand({4, 3, 3, 3});
  const Names names = seen([&] {
    at::Tensor y = torch::conv2d(x, w);
    y.relu_();
    y.sum().item<float>();
    torch::zeros({2});
  });
  BOOST_TEST(names == (Names{"aten::conv2d", "aten::relu_", "aten::sum", "aten::item", "aten::zeros"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(at_leaf_level_sees_what_an_operation_is_composed_of) {
  const at::Tensor x = torch::rand({2, 3}), w = torch::rand({4, 3});
  BOOST_TEST(seen([&] { at::matmul(x, w.t()); }) == (Names{"aten::t", "aten::matmul"}),
             boost::test_tools::per_element());
  // t has a formula of its own for gradients, so it is a leaf.
  BOOST_TEST(seen([&] { at::matmul(x, w.t()); }, ops::Level::leaf) == (Names{"aten::t", "aten::mm"}),
             boost::test_tools::per_element());
  const Names conv = seen(
      [&] {
        torch::conv2d(torch::ones({1, 1, 4, 4}), torch::ones({1, 1, 2, 2}));
      },
      ops::Level::leaf);
  BOOST_TEST(conv == (Names{"aten::ones", "aten::ones", "aten::convolution"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(gives_arguments_before_and_results_after) {
  const at::Tensor x = torch::arange(6).reshape({2, 3});
  at::Tensor before, after;
  std::string overload;
  bool ran_before = true, ran_after = false;
  {
    const ops::Scope scope([&](ops::Event& event) {
      before = event.arguments()[0].toTensor();
      overload = event.overload();
      BOOST_TEST(event.arguments().size() == event.schema().arguments().size());
      BOOST_CHECK_EXCEPTION(event.results(), c10::ValueError, says({"results", "aten::sum", "run()"}));
      ran_before = event.ran();
      event.run();
      ran_after = event.ran();
      BOOST_CHECK_EXCEPTION(event.arguments(), c10::ValueError, says({"arguments", "aten::sum", "copy"}));
      BOOST_CHECK_EXCEPTION(event.run(), c10::ValueError, says({"once"}));
      BOOST_CHECK_EXCEPTION(event.skip({x}), c10::ValueError, says({"skip", "assign"}));
      after = event.results()[0].toTensor();
      BOOST_CHECK_EXCEPTION(event.results()[1], c10::IndexError,
                            says({"there is no value 1", "there are 1"}));
    });
    BOOST_TEST(x.sum(1).is_same(after));
  }
  BOOST_TEST(before.is_same(x));
  BOOST_TEST(overload == "dim_IntList");
  BOOST_TEST(!ran_before);
  BOOST_TEST(ran_after);
  BOOST_TEST(after.equal(torch::tensor({3, 12})));
}

BOOST_AUTO_TEST_CASE(a_callback_may_replace_arguments_and_results_and_skip_the_operation) {
  const at::Tensor x = torch::ones({3}), eleven = torch::full({3}, 11.F);
  {
    const ops::Scope scope([](ops::Event& event) {
      if (event.name() != "aten::add") return;
      const at::Tensor other = event.arguments()[1].toTensor() * 10;
      event.arguments()[1] = other;
    });
    BOOST_TEST((x + x).equal(eleven));
  }
  {
    const at::Tensor negative = -x.exp();
    const ops::Scope scope([](ops::Event& event) {
      if (event.name() != "aten::exp") return;
      event.run();
      event.results()[0] = event.results()[0].toTensor().neg();
    });
    BOOST_TEST(x.exp().equal(negative));
  }
  {
    const ops::Scope scope([&](ops::Event& event) { event.skip({x}); });
    BOOST_TEST(torch::mm(torch::rand({2, 9}), torch::rand({4, 4})).is_same(x));  // shapes that mm refuses
  }
  const ops::Scope scope([&](ops::Event& event) { event.skip({}); });
  BOOST_CHECK_EXCEPTION(x.exp(), c10::ValueError, says({"skip", "aten::exp", "returns 1"}));
}

BOOST_AUTO_TEST_CASE(exceptions_reach_the_caller_and_leave_the_scope_usable) {
  struct Stop {};
  const at::Tensor x = torch::ones({2, 3});
  int calls = 0;
  const ops::Scope scope([&](ops::Event& event) {
    ++calls;
    if (event.name() == "aten::exp") throw Stop{};
  });
  BOOST_CHECK_THROW(x.exp(), Stop);
  BOOST_CHECK_THROW(torch::mm(x, x), c10::Error);  // of the operation itself
  BOOST_TEST((x + x).equal(torch::full({2, 3}, 2.F)));
  BOOST_TEST(calls >= 3);
}

BOOST_AUTO_TEST_CASE(a_callback_that_swallows_an_exception_has_to_give_results) {
  const at::Tensor x = torch::ones({2, 3});
  {
    const ops::Scope scope([](ops::Event& event) {
      try {
        event.run();
      } catch (const c10::Error&) {
      }
    });
    BOOST_CHECK_EXCEPTION(torch::mm(x, x), c10::ValueError, says({"aten::mm", "skip()"}));
  }
  const ops::Scope scope([&](ops::Event& event) {
    try {
      event.run();
    } catch (const c10::Error&) {
      event.skip({x});
    }
  });
  BOOST_TEST(torch::mm(x, x).is_same(x));
}

BOOST_AUTO_TEST_CASE(an_exception_passes_through_backward_and_torchscript) {
  struct Stop : std::runtime_error {
    Stop() : std::runtime_error("stopped here") {}
  };
  const auto throws_at = [](const std::string& name) {
    return [name](ops::Event& event) {
      if (event.name() == name) throw Stop();
    };
  };
  at::Tensor x = torch::ones({3}).requires_grad_();
  const at::Tensor loss = x.exp().sum();
  {
    const ops::Scope scope(throws_at("aten::mul"));
    BOOST_CHECK_THROW(loss.backward(), std::runtime_error);
  }
  auto module = torch::jit::Module("m");
  module.define("def forward(self, x):\n    return torch.tanh(x) + 1\n");
  {
    const ops::Scope scope(throws_at("aten::tanh"));
    BOOST_CHECK_EXCEPTION(module.forward({x}), std::exception, [](const std::exception& error) {
      return std::string(error.what()).find("stopped here") != std::string::npos;
    });
  }
  BOOST_TEST(module.forward({x}).toTensor().equal(x.tanh() + 1));
}

BOOST_AUTO_TEST_CASE(writes_follow_schemas_and_the_norms_that_do_not_say_so) {
  std::map<std::string, std::vector<bool>> writes;
  torch::nn::BatchNorm2d norm(3);
  norm->train();
  const at::Tensor x = torch::rand({2, 3, 4, 4}), y = torch::rand({3});
  {
    const ops::Scope scope([&](ops::Event& event) {
      auto& list = writes[event.name()];
      list.clear();
      for (std::size_t i = 0; i < event.arguments().size(); ++i) list.push_back(event.writes(i));
      BOOST_CHECK_EXCEPTION(event.writes(99), c10::IndexError, says({"argument 99"}));
    });
    y.add_(1);
    norm(x);
  }
  BOOST_TEST(writes["aten::add_"] == (std::vector<bool>{true, false, false}),
             boost::test_tools::per_element());
  BOOST_TEST(writes["aten::batch_norm"] ==
                 (std::vector<bool>{false, false, false, true, true, false, false, false, false}),
             boost::test_tools::per_element());
  norm->eval();
  bool any = false;
  const ops::Scope scope([&](ops::Event& event) {
    for (std::size_t i = 0; i < event.arguments().size(); ++i) any = any || event.writes(i);
  });
  norm(x);
  BOOST_TEST(!any);
}

BOOST_AUTO_TEST_CASE(scopes_nest_and_each_has_its_level) {
  Names outer, inner, order;
  const at::Tensor x = torch::rand({2, 3}), w = torch::rand({4, 3});
  {
    const ops::Scope first(
        [&](ops::Event& event) {
          order.push_back("outer");
          outer.push_back(event.name());
        },
        ops::Level::leaf);
    {
      const ops::Scope second([&](ops::Event& event) {
        order.push_back("inner");
        inner.push_back(event.name());
        event.run();
        order.push_back("inner again");
      });
      at::linear(x, w);
    }
    x.exp();
  }
  x.exp();
  BOOST_TEST(inner == (Names{"aten::linear"}), boost::test_tools::per_element());
  BOOST_TEST(outer == (Names{"aten::t", "aten::mm", "aten::exp"}), boost::test_tools::per_element());
  BOOST_TEST(order == (Names{"inner", "outer", "outer", "inner again", "outer"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_event_can_be_looked_into) {
  const at::Tensor x = torch::rand({2, 3}), w = torch::rand({4, 3});
  const at::Tensor plain = at::matmul(x, w.t()) + 1;
  Names outer, inner, deep;
  {
    const ops::Scope around([&](ops::Event& event) { outer.push_back(event.name()); });
    const ops::Callback inside = [&](ops::Event& event) {
      inner.push_back(event.name());
      ops::run_inside(event, [&](ops::Event& below) { deep.push_back(below.name()); });
    };
    const ops::Scope scope([&](ops::Event& event) { ops::run_inside(event, inside); });
    const at::Tensor sum = at::matmul(x, w.t()) + 1;
    {
      const ops::Unseen unseen;
      BOOST_TEST(sum.equal(plain));
    }
    BOOST_CHECK_THROW(at::matmul(x, x), c10::Error);  // thrown by an operation inside
    inner.clear();
    at::layer_norm(x, {3});
  }
  x.exp();
  BOOST_TEST(outer == (Names{"aten::t", "aten::matmul", "aten::add", "aten::matmul", "aten::layer_norm"}),
             boost::test_tools::per_element());
  BOOST_TEST(inner == (Names{"aten::native_layer_norm"}), boost::test_tools::per_element());
  BOOST_TEST((std::find(deep.begin(), deep.end(), "aten::t") == deep.end()));  // what is called below mm
  const ops::Scope scope([](ops::Event& event) { ops::run_inside(event, nullptr); });
  BOOST_CHECK_EXCEPTION(x.exp(), c10::ValueError, says({"run_inside", "aten::exp", "empty"}));
}

BOOST_AUTO_TEST_CASE(what_a_callback_calls_is_not_seen) {
  int calls = 0;
  const ops::Scope scope([&](ops::Event&) {
    ++calls;
    torch::rand({3}).exp();
  });
  torch::ones({2});
  BOOST_TEST(calls == 1);
  const ops::Unseen unseen;
  torch::ones({2});
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(threads_that_carry_the_state_report_to_the_scope) {
  const at::Tensor x = torch::rand({4});
  const Names names = seen([&] {  // as TorchScript's forks are run
    std::promise<void> done;
    at::launch([&] {
      x.tanh();
      done.set_value();
    });
    done.get_future().wait();
  });
  BOOST_TEST(names == (Names{"aten::tanh"}), boost::test_tools::per_element());

  const auto in_thread = [&](bool carried) {
    return seen([&] {
      const at::ThreadLocalState state;
      std::thread thread([&] {
        std::optional<at::ThreadLocalStateGuard> guard;
        if (carried) guard.emplace(state);
        x.exp();
      });
      thread.join();
    });
  };
  BOOST_TEST(in_thread(false).empty());
  BOOST_TEST(in_thread(true) == (Names{"aten::exp"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_thread_that_outlives_the_scope_reports_no_more) {
  std::atomic<int> calls{0};
  std::optional<at::ThreadLocalState> state;
  {
    const ops::Scope scope([&](ops::Event&) { ++calls; });
    state.emplace();
  }
  const at::ThreadLocalStateGuard guard(*state);
  torch::ones({2});
  BOOST_TEST(calls == 0);
}

BOOST_AUTO_TEST_CASE(nothing_is_left_of_a_scope) {
  seen([] {});
  const auto key = c10::DispatchKey::TESTING_ONLY_GenericMode;
  BOOST_TEST(!c10::impl::tls_is_dispatch_key_included(key));
  BOOST_TEST(!c10::impl::tls_is_dispatch_key_excluded(key));
  BOOST_TEST(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO) == nullptr);
  BOOST_CHECK_EXCEPTION(ops::Scope(nullptr), c10::ValueError, says({"callback", "empty"}));
  BOOST_TEST(!c10::impl::tls_is_dispatch_key_included(key));
}

BOOST_AUTO_TEST_CASE(a_scope_that_is_destroyed_elsewhere_calls_nothing_any_more) {
  // In a thread, which keeps what the scope would have put back.
  std::thread([] {
    int calls = 0;
    auto scope = std::make_unique<ops::Scope>([&](ops::Event&) { ++calls; });
    torch::ones({2});
    std::thread([&] {
      scope.reset();
      torch::ones({2});
      BOOST_TEST(seen([] { torch::ones({2}); }) == Names{"aten::ones"}, boost::test_tools::per_element());
    }).join();
    torch::ones({2});
    BOOST_TEST(calls == 1);
    BOOST_TEST(seen([] { torch::ones({2}); }) == Names{"aten::ones"}, boost::test_tools::per_element());
  }).join();
}

BOOST_AUTO_TEST_CASE(operations_run_when_the_threads_objects_are_destroyed) {
  // As in the main thread, whose objects are destroyed before those of static storage.
  static double sum = 0;
  static bool is_left = true;  // what LibTorch itself reads whenever it allocates
  struct Late {
    std::unique_ptr<ops::Scope> scope;  // destroyed when the thread has no state left to put back
    ~Late() {
      is_left = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO) != nullptr;
      sum = torch::ones({3}).sum().item<double>();
    }
  };
  std::thread([] {
    static thread_local Late late;
    late.scope = std::make_unique<ops::Scope>([](ops::Event& event) { event.run(); });
    torch::ones({2});
  }).join();
  BOOST_TEST(!is_left);
  BOOST_TEST(sum == 3);

  sum = 0;
  is_left = true;
  std::thread([] {  // LibTorch puts the state of this scope back when backward returns
    static thread_local Late late;
    late.scope = std::make_unique<ops::Scope>([](ops::Event& event) { event.run(); });
    const at::Tensor x = torch::ones({2}).requires_grad_();
    x.register_hook([](const at::Tensor&) { late.scope.reset(); });
    x.sum().backward();
  })
      .join();
  BOOST_TEST(!is_left);
  BOOST_TEST(sum == 3);
}

BOOST_AUTO_TEST_CASE(results_and_gradients_are_the_same_bits) {
  const auto run = [](bool scoped) {
    torch::manual_seed(3);
    torch::nn::Sequential model(torch::nn::Conv2d(3, 8, 3), torch::nn::BatchNorm2d(8), torch::nn::ReLU(true),
                                torch::nn::Dropout(0.3), torch::nn::Flatten(), torch::nn::Linear(288, 5));
    const at::Tensor x = torch::rand({2, 3, 8, 8}).requires_grad_();
    std::optional<ops::Scope> scope;
    if (scoped) scope.emplace([](ops::Event&) {});
    at::Tensor y = model->forward(x);
    y.pow(2).sum().backward();
    std::vector<at::Tensor> all{y, x.grad()};
    for (const auto& parameter : model->parameters()) all.push_back(parameter.grad());
    for (const auto& buffer : model->buffers()) all.push_back(buffer);
    all.push_back(torch::rand({3}));
    return all;
  };
  const auto plain = run(false), scoped = run(true);
  for (std::size_t i = 0; i < plain.size(); ++i) BOOST_TEST(plain[i].equal(scoped[i]));
}

BOOST_AUTO_TEST_CASE(torchtaps_own_hooks_and_recorders_are_not_seen) {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::ReLU(), torch::nn::Linear(4, 2));
  const at::Tensor x = torch::rand({3, 4}).requires_grad_();
  const auto pass = [&] { model->forward(x); };
  const Names plain = seen(pass);
  torchtap::recorders::ForwardOutput kept;
  torchtap::recorders::ForwardInput reduced(torchtap::recorders::RecorderOptions()
                                                .reduction(torchtap::reductions::Moments())
                                                .transform([](const at::Tensor& t) { return t * 2; }));
  torchtap::recorders::BackwardInput through(torchtap::recorders::RecorderOptions().dtype(at::kDouble));
  torchtap::recorders::BackwardOutput arrived;
  for (torchtap::recorders::Recorder* recorder :
       std::initializer_list<torchtap::recorders::Recorder*>{&kept, &reduced, &through, &arrived}) {
    recorder->modules(*model);
  }
  const Names recorded = seen(pass);
  BOOST_TEST(recorded == plain, boost::test_tools::per_element());
  BOOST_TEST(kept.samples() == 4);
  const Names with_backward = seen([&] { model->forward(x).sum().backward(); });
  BOOST_TEST(through.samples() > 0);
  BOOST_TEST(arrived.samples() > 0);
  for (const std::string& name : with_backward) BOOST_TEST(name != "aten::to");  // of dtype(kDouble)
}

BOOST_AUTO_TEST_CASE(every_kind_of_tensor_passes) {
  const at::Tensor x = torch::rand({2, 3});
  const auto plain = [&] {
    std::vector<at::Tensor> all;
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR < 213  // later versions have no names of dimensions
    const auto n = x.refine_names({at::Dimname::fromSymbol(at::Symbol::dimname("N")),
                                   at::Dimname::fromSymbol(at::Symbol::dimname("C"))});
    all.push_back(n.sum(at::Dimname::fromSymbol(at::Symbol::dimname("C"))).rename(c10::nullopt));
#endif
    auto y = torch::empty({0});
    y.set_(x.storage());
    all.push_back(y);
    all.push_back(torch::rand({2}, at::make_generator<at::CPUGeneratorImpl>(1)));
    auto out = torch::empty({});
    at::sum_out(out, x, at::IntArrayRef{0, 1});
    all.push_back(out);
    all.push_back(x.index({torch::tensor({0}), torch::indexing::Slice()}));
    all.push_back(at::index(x, {c10::nullopt, torch::tensor({1, 0})}));
    all.push_back(torch::view_as_complex(torch::ones({2, 2})).conj().abs());
    all.push_back(x.to_sparse().mul(2).to_dense());
    all.push_back(torch::quantize_per_tensor(x, 0.1, 0, torch::kQInt8).dequantize());
    all.push_back(x.to_mkldnn().to_dense());
    all.push_back(torch::einsum("ij,kj->ik", {x, x}));
    {
      const c10::InferenceMode mode;
      auto z = x + 1;
      z.relu_();
      z.view({3, 2}).add_(1);
      all.push_back(z);
    }
    return all;
  };
  const auto without = plain();
  std::vector<at::Tensor> with;
  BOOST_TEST(seen([&] { with = plain(); }).size() > 15);
  BOOST_REQUIRE(with.size() == without.size());
  for (std::size_t i = 0; i < with.size(); ++i) BOOST_TEST(with[i].equal(without[i]), "value " << i);
}

BOOST_AUTO_TEST_CASE(torchscript_folds_no_constants_in_a_scope) {
  torch::jit::Module module("m");
  module.define(R"(
def forward(self, x):
    if bool(x.sum() > 1000):
        return x + torch.triu(torch.full([6, 6], float("-inf")), 1)
    return x * 2
)");
  const auto x = torch::ones({6, 6});
  for (int run = 0; run < 4; ++run) {  // LibTorch compiles before the first and before the second
    const auto names = seen([&] { module.forward({x}); });
    BOOST_TEST((std::find(names.begin(), names.end(), "aten::full") == names.end()), "run " << run);
    BOOST_TEST((std::find(names.begin(), names.end(), "aten::triu") == names.end()), "run " << run);
    BOOST_TEST(names.back() == "aten::mul");
  }
  torch::jit::Module taken("m");
  taken.define("def forward(self, x):\n    return x + torch.full([6, 6], 1.0).log()\n");
  const auto forbid = [](ops::Event& event) {
    if (event.name() == "aten::log") throw std::runtime_error("no logarithms");
  };
  for (int run = 0; run < 3; ++run) {  // a compiler that runs it would catch that
    const ops::Scope scope(forbid);
    BOOST_CHECK_THROW(taken.forward({x}), std::exception);  // of a type that depends on LibTorch's version
  }
  BOOST_TEST(torch::jit::getGraphExecutorOptimize());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
