// Companions that come from other modules, against plain LibTorch.
#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <torch/torch.h>

#include <string>
#include <thread>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(pairing)

namespace nn = torchtap::nn;
using namespace torchtap::recorders;
using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap_test::contains;
using torchtap_test::error_of;

/// A mixture of experts: the router gives logits and the expert of each row.
struct RouterImpl : torch::nn::Module {
  torch::nn::Linear logits = register_module("logits", torch::nn::Linear(6, 4));
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor scores = logits->forward(x);
    return {scores, scores.argmax(1)};
  }
};
TORCHTAP_MODULE(Router);
struct MoEImpl : torch::nn::Module {
  Router router = register_module("router", Router());
  nn::Linear first = register_module("first", nn::Linear(6, 6));
  nn::Linear second = register_module("second", nn::Linear(6, 6));
  nn::ReLU relu = register_module("relu", nn::ReLU(torch::nn::ReLUOptions(true)));
  bool fails = false, skips = false;
  int repeats = 1;

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor expert = std::get<1>(router->forward(x));
    at::Tensor y = x;
    for (int i = 0; i < repeats; ++i) y = first->forward(y);
    y = relu->forward(y);  // in place
    if (fails) throw std::runtime_error("a forward that fails");
    if (skips) return y;
    return second->forward(y) + expert.unsqueeze(1);
  }
};
TORCHTAP_MODULE(MoE);
struct NetImpl : torch::nn::Module {
  MoE moe = register_module("moe", MoE());
  nn::Linear head = register_module("head", nn::Linear(6, 3));
  at::Tensor forward(const at::Tensor& x) { return head->forward(moe->forward(x)); }
};
TORCHTAP_MODULE(Net);

namespace {

std::vector<at::Tensor> inputs(int n = 5) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < n; ++i) all.push_back(at::randn({16, 6}));
  return all;
}

Mean mean() {
  return Mean(MeanOptions().over({0}));
}

auto near(const at::Tensor& a, const at::Tensor& b) {
  return torchtap_test::close(a, b, 1e-4, 1e-5);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_expert_of_each_row_comes_from_the_router) {
  at::manual_seed(1);
  Net net;
  ForwardOutput experts(RecorderOptions()
                            .with("expert", output("./router", 1))
                            .reduction(by("expert", 4, Series(mean(), Count(CountOptions().over({0}))))));
  experts.attach(net, torchtap::selectors::names("moe"));
  std::vector<Mean> want(4, mean());
  at::Tensor plain;
  for (const auto& x : inputs()) {
    const at::Tensor y = net->forward(x);
    experts.detach();
    plain = net->forward(x);
    BOOST_TEST(at::equal(y, plain));
    const at::Tensor expert = std::get<1>(net->moe->router->forward(x)), out = net->moe->forward(x);
    for (std::int64_t i = 0; i < 4; ++i) {
      const at::Tensor rows = expert.eq(i).nonzero().flatten();
      if (rows.numel() != 0) want[i].update(out.index_select(0, rows));
    }
    experts.replace(0, torchtap::model::find(*net, "moe"));
  }
  BOOST_TEST(experts[0].samples() == 5);
  BOOST_TEST(experts[0].unmatched() == 0);
  for (std::int64_t i = 0; i < 4; ++i) {
    if (want[i].count() != 0) BOOST_TEST(near(experts[0].tensor("mean.value")[i], want[i].value()));
  }
  BOOST_TEST(experts[0].tensor("expert.count").sum().item<std::int64_t>() == 5 * 16);
}

/// A sample that waits keeps its values, although the next module changes it in place.
BOOST_AUTO_TEST_CASE(a_sample_waits_for_what_comes_later) {
  at::manual_seed(2);
  Net net;
  ForwardOutput early(RecorderOptions()
                          .with("class", output("/").map([](const at::Tensor& y) { return y.argmax(1); }))
                          .reduction(by("class", 3, mean())));
  early.attach(net, torchtap::selectors::names("moe.first"));
  ForwardOutput beside(
      RecorderOptions().with("theirs", output("../second")).reduction(CrossCovariance("theirs")));
  beside.attach(net, torchtap::selectors::names("moe.first"));
  ForwardOutput own(RecorderOptions()
                        .with("mine", input("."))
                        .reduction(joint("mine", Covariance(CovarianceOptions().over({0})))));
  own.attach(net, torchtap::selectors::names("moe.second"));
  std::vector<Mean> want(3, mean());
  std::vector<at::Tensor> first, second;
  for (const auto& x : inputs()) {
    const at::Tensor y = net->forward(x).argmax(1);
    const at::Tensor before =
        torch::nn::functional::linear(x, net->moe->first->weight, net->moe->first->bias);
    first.push_back(before.detach());
    second.push_back(
        torch::nn::functional::linear(before.relu(), net->moe->second->weight, net->moe->second->bias)
            .detach());
    for (std::int64_t i = 0; i < 3; ++i) {
      const at::Tensor rows = y.eq(i).nonzero().flatten();
      if (rows.numel() != 0) want[i].update(before.detach().index_select(0, rows));
    }
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    if (want[i].count() != 0) BOOST_TEST(near(early[0].tensor("value")[i], want[i].value()));
  }
  const at::Tensor a = at::cat(first).to(at::kDouble), b = at::cat(second).to(at::kDouble);
  const at::Tensor cross = (a - a.mean(0)).t().mm(b - b.mean(0)) / (static_cast<double>(a.size(0)) - 1);
  BOOST_TEST(near(beside[0].tensor("covariance"), cross));
  // The second layer is linear in its input: least squares finds its weights.
  const auto found = least_squares(own[0].results());
  const at::Tensor design = own[0].tensor("covariance");
  BOOST_TEST(found.at("weight").size(1) == 6);
  BOOST_TEST(early[0].unmatched() + beside[0].unmatched() + own[0].unmatched() == 0);
  BOOST_TEST(own[0].samples() == 5);
}

BOOST_AUTO_TEST_CASE(two_models_within_one_context) {
  BOOST_CHECK_EXCEPTION(output(std::vector<torchtap::model::ModuleRef>{}), c10::ValueError,
                        torchtap_test::says({"recorders::output", "got none"}));
  at::manual_seed(3);
  Net a, b;
  for (const bool a_first : {true, false}) {
    const auto theirs = a_first ? output(b) : output(torchtap::model::walk_modules(*b));
    ForwardOutput cka(RecorderOptions().with("theirs", theirs).reduction(LinearCKA("theirs")));
    cka.attach(a, torchtap::selectors::names("moe.first", "head"));
    LinearCKA first("theirs"), head("theirs");
    for (const auto& x : inputs()) {
      {
        const Context together;
        if (a_first) a->forward(x);
        b->forward(x);
        if (!a_first) a->forward(x);
      }
      const auto linear = [&](Net& net) {
        return torch::nn::functional::linear(x, net->moe->first->weight, net->moe->first->bias).detach();
      };
      {
        const Context named("theirs", linear(b));
        first.update(linear(a));
      }
      cka.detach();
      const at::Tensor ya = a->forward(x).detach(), yb = b->forward(x).detach();
      const Context named("theirs", yb);
      head.update(ya);
      cka.replace(0, torchtap::model::find(*a, "moe.first"));
      cka.replace(1, torchtap::model::find(*a, "head"));
    }
    BOOST_TEST(near(cka.at("moe.first").tensor("value"), first.value()));
    BOOST_TEST(near(cka.at("head").tensor("value"), head.value()));
    BOOST_TEST(cka[0].samples() == 5);
    BOOST_TEST(cka[0].unmatched() == 0);

    const auto error = error_of([&] { a->forward(inputs(1)[0]); });
    BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "run all inside of one core::Context"));
    {
      const Context together;  // twice in one context, and the other model never
      a->forward(inputs(1)[0]);
      a->forward(inputs(1)[0]);
    }
    BOOST_TEST(cka[0].unmatched() == 2);
    BOOST_TEST(cka[0].samples() == 5);
    BOOST_TEST(contains(cka[0].note(), "2 of its samples and companions found no partner"));
  }
}

/// Forward f of one model belongs to forward f of the other, in whichever order they run.
BOOST_AUTO_TEST_CASE(forwards_of_two_models_in_one_context_are_paired_in_their_order) {
  at::manual_seed(10);
  Net a, b;
  const auto x = inputs(3);
  const auto run = [&](Net& net, int input) { net(x[static_cast<std::size_t>(input)]); };
  using Order = std::vector<std::pair<char, int>>;
  const std::vector<Order> orders{{{'a', 0}, {'a', 1}, {'b', 0}, {'b', 1}},
                                  {{'b', 0}, {'b', 1}, {'a', 0}, {'a', 1}},
                                  {{'a', 0}, {'b', 0}, {'b', 1}, {'a', 1}},
                                  {{'a', 0}, {'b', 0}, {'a', 1}, {'b', 1}, {'b', 2}}};
  for (const bool head : {false, true}) {
    CrossCovariance want("theirs");
    for (int i = 0; i < 2; ++i) {
      at::Tensor mine, theirs;
      {
        ForwardOutput one, other;
        one.attach(a, torchtap::selectors::names(head ? "head" : "moe.second"));
        other.attach(b, torchtap::selectors::names(head ? "head" : "moe.second"));
        run(a, i);
        run(b, i);
        mine = one[0].tensors()[0];
        theirs = other[0].tensors()[0];
      }
      const Context named("theirs", theirs);
      want.update(mine);
    }
    for (const Order& order : orders) {
      ForwardOutput recorder(
          RecorderOptions().with("theirs", output(b)).reduction(CrossCovariance("theirs")));
      recorder.attach(a, torchtap::selectors::names(head ? "head" : "moe.second"));
      {
        const Context together;
        for (const auto& [which, input] : order) run(which == 'a' ? a : b, input);
      }
      BOOST_TEST(recorder[0].samples() == 2);
      BOOST_TEST(recorder[0].unmatched() == static_cast<std::int64_t>(order.size()) - 4);
      BOOST_TEST(near(recorder[0].results().at("covariance"), want.covariance()));
    }
    // A forward that does not call the module has its turn, too.
    if (head) continue;
    ForwardOutput recorder(RecorderOptions().with("theirs", output(b)).reduction(CrossCovariance("theirs")));
    recorder.attach(a, torchtap::selectors::names("moe.second"));
    const Context together;
    a->moe->skips = true;
    run(a, 2);
    a->moe->skips = false;
    run(a, 0);
    run(a, 1);
    for (const int input : {2, 0, 1}) run(b, input);
    BOOST_TEST(recorder[0].samples() == 2);
    BOOST_TEST(near(recorder[0].results().at("covariance"), want.covariance()));
  }
}

/// A forward that was refused does not take the next one's sample with it, nor the other way round.
BOOST_AUTO_TEST_CASE(refused_and_accepted_forwards_in_one_context) {
  at::manual_seed(9);
  Net a, b;
  bool open = false;
  ForwardOutput recorder(RecorderOptions()
                             .condition([&] { return open; })
                             .with("theirs", output(b))
                             .reduction(CrossCovariance("theirs")));
  recorder.attach(a, torchtap::selectors::names("head"));
  const auto x = inputs(1)[0];
  for (const bool last : {true, false}) {
    const Context together;
    for (const bool now : {!last, last}) {
      open = now;
      a(x);
    }
    b(x);
  }
  BOOST_TEST(recorder[0].samples() == 1);
  BOOST_TEST(recorder[0].unmatched() == 1);
  BOOST_TEST(recorder[0].events() == 4);
}

BOOST_AUTO_TEST_CASE(what_finds_no_partner_is_counted_and_let_go) {
  at::manual_seed(4);
  Net net;
  ForwardOutput recorder(
      RecorderOptions().with("theirs", output("../second")).reduction(CrossCovariance("theirs")));
  recorder.attach(net, torchtap::selectors::names("moe.first"));
  const auto x = inputs(1)[0];
  net->moe->fails = true;
  BOOST_CHECK_THROW(net->forward(x), std::runtime_error);
  BOOST_TEST(recorder[0].unmatched() == 1);
  net->moe->fails = false;
  net->moe->skips = true;
  net->forward(x);
  BOOST_TEST(recorder[0].unmatched() == 2);
  net->moe->skips = false;
  net->moe->repeats = 3;  // three calls, and one of the other module
  net->forward(x);
  BOOST_TEST(recorder[0].unmatched() == 4);
  BOOST_TEST(recorder[0].samples() == 1);
  BOOST_TEST(recorder[0].events() == 5);
  recorder.reset();
  BOOST_TEST(recorder[0].unmatched() == 0);
  BOOST_TEST(recorder[0].events() == 0);

  // A refused sample leaves its companion without a partner, and nobody misses it.
  bool open = false;
  ForwardOutput refused(RecorderOptions()
                            .condition([&] { return open; })
                            .with("theirs", output("../second"))
                            .reduction(CrossCovariance("theirs")));
  refused.attach(net, torchtap::selectors::names("moe.first"));
  net->moe->repeats = 1;
  net->forward(x);
  BOOST_TEST(refused[0].unmatched() == 0);
  open = true;
  net->forward(x);
  BOOST_TEST(refused[0].samples() == 1);
  BOOST_TEST(refused[0].events() == 2);
}

BOOST_AUTO_TEST_CASE(threads_pair_their_own) {
  at::manual_seed(5);
  Net net;
  ForwardOutput recorder(
      RecorderOptions().with("theirs", output("../second")).reduction(CrossCovariance("theirs")));
  recorder.attach(net, torchtap::selectors::names("moe.first"));
  const auto all = inputs(40);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * 10; i < t * 10 + 10; ++i) net->forward(all[static_cast<std::size_t>(i)]);
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(recorder[0].samples() == 40);
  BOOST_TEST(recorder[0].unmatched() == 0);
  CrossCovariance want("theirs");
  for (const auto& x : all) {
    const at::Tensor first =
        torch::nn::functional::linear(x, net->moe->first->weight, net->moe->first->bias).detach();
    const Context named("theirs", torch::nn::functional::linear(first.relu(), net->moe->second->weight,
                                                                net->moe->second->bias)
                                      .detach());
    want.update(first);
  }
  BOOST_TEST(near(recorder[0].tensor("covariance"), want.covariance()));
}

BOOST_AUTO_TEST_CASE(transforms_dtypes_and_slots_are_as_without_companions) {
  at::manual_seed(6);
  Net net;
  ForwardOutput recorder(
      RecorderOptions()
          .all_tensors()
          .dtype(at::kDouble)
          .transform([](const at::Tensor& x) { return x.dim() == 2 ? x.mean(1) : x.to(at::kDouble); })
          .with("class", output("/").map([](const at::Tensor& y) { return y.argmax(1); }))
          .reduction(by("class", 3, mean())));
  recorder.attach(net, torchtap::selectors::names("moe.router"));
  std::vector<Mean> logits(3, mean());
  for (const auto& x : inputs()) {
    const at::Tensor y = net->forward(x).argmax(1);
    recorder.detach();
    const at::Tensor out = std::get<0>(net->moe->router->forward(x)).detach().mean(1).to(at::kDouble);
    for (std::int64_t i = 0; i < 3; ++i) {
      const at::Tensor rows = y.eq(i).nonzero().flatten();
      if (rows.numel() != 0) logits[i].update(out.index_select(0, rows));
    }
    recorder.replace(0, torchtap::model::find(*net, "moe.router"));
  }
  BOOST_TEST(recorder[0].slots() == 2);
  for (std::int64_t i = 0; i < 3; ++i) {
    if (logits[i].count() != 0)
      BOOST_TEST(near(recorder[0].slot(0).at("value").tensor()[i], logits[i].value()));
  }
}

#ifdef TORCHTAP_TEST_TORCHSCRIPT
BOOST_AUTO_TEST_CASE(of_a_torchscript_model) {
  at::manual_seed(7);
  torch::jit::Module layer("Layer"), net("Net");
  for (auto* const one : {&layer, &net}) one->define("");
  torch::jit::Module first = layer.clone(), second = layer.clone();
  first.define("def forward(self, x):\n    return x * 2 + 1\n");
  second = torch::jit::Module("Second");
  second.define("def forward(self, x):\n    return x.cos()\n");
  net.register_module("first", first);
  net.register_module("second", second);
  net.define("def forward(self, x):\n    return self.second.forward(self.first.forward(x))\n");
  ForwardOutput recorder(
      RecorderOptions().with("theirs", output("../second")).reduction(CrossCovariance("theirs")));
  recorder.attach(net, torchtap::selectors::names("first"));
  CrossCovariance want("theirs");
  for (const auto& x : inputs()) {
    net.forward({x});
    const Context named("theirs", (x * 2 + 1).cos());
    want.update(x * 2 + 1);
  }
  BOOST_TEST(recorder[0].samples() == 5);
  BOOST_TEST(recorder[0].unmatched() == 0);
  BOOST_TEST(near(recorder[0].tensor("covariance"), want.covariance()));
}
#endif

#ifdef TORCHTAP_TEST_TORCHSCRIPT
/// Two experts for each row: weights and numbers are [N, 2], the router's two outputs.
BOOST_AUTO_TEST_CASE(the_experts_of_a_torchscript_model) {
  at::manual_seed(10);
  const auto linear = [](std::int64_t in, std::int64_t out) {
    torch::jit::Module module("Linear");
    module.register_parameter("weight", at::randn({out, in}), false);
    module.define("def forward(self, x):\n    return torch.matmul(x, self.weight.t())\n");
    return module;
  };
  torch::jit::Module router("Router"), moe("MoE"), net("Net");
  router.register_module("scores", linear(6, 4));
  router.define(R"(
def forward(self, x):
    best = torch.topk(torch.softmax(self.scores.forward(x), 1), 2, 1)
    return best[0], best[1]
)");
  moe.register_module("router", router);
  for (int i = 0; i < 4; ++i) moe.register_module("expert" + std::to_string(i), linear(6, 6));
  moe.define(R"(
def forward(self, x):
    weights, chosen = self.router.forward(x)
    y = torch.stack([self.expert0.forward(x), self.expert1.forward(x), self.expert2.forward(x),
                     self.expert3.forward(x)], 1)
    mine = torch.gather(y, 1, chosen.unsqueeze(2).expand(-1, -1, 6))
    return torch.sum(mine * weights.unsqueeze(2), 1)
)");
  net.register_module("moe", moe);
  net.define("def forward(self, x):\n    return torch.relu(self.moe.forward(x))\n");

  ForwardOutput experts(
      RecorderOptions()
          .transform([](const at::Tensor& y) {
            return y.unsqueeze(1).expand({-1, 2, -1});
          })
          .with("weight", output("./router", 0))
          .with("expert", output("./router", 1))
          .reduction(by("labels", 3,
                        by("expert", 4,
                           Series(Moments(MomentsOptions().over({0})),
                                  map(
                                      "weight", [](const at::Tensor&, const at::Tensor& w) { return w; },
                                      Mean(MeanOptions().over_all(true))))))));
  experts.attach(net, torchtap::selectors::names("moe"));
  std::vector<at::Tensor> rows, labels;
  for (const auto& x : inputs()) {
    rows.push_back(x);
    labels.push_back(at::randint(3, {16}, at::kLong));
    const Context named("labels", labels.back());
    net.forward({x});
  }
  BOOST_TEST(experts[0].samples() == 5);
  BOOST_TEST(experts[0].unmatched() == 0);

  // By hand, of all rows at once: each expert's weight is 0 where it was not chosen.
  const auto weight = [&](const std::string& path) {
    at::Tensor found;
    for (const auto& parameter : net.named_parameters()) {
      if (parameter.name == "moe." + path + ".weight") found = parameter.value;
    }
    return found.t();
  };
  const at::Tensor x = at::cat(rows), label = at::cat(labels);
  const at::Tensor all = x.mm(weight("router.scores")).softmax(1);
  const at::Tensor third = std::get<0>(all.sort(1)).select(1, 1).unsqueeze(1), weights = all * all.gt(third);
  at::Tensor y = at::zeros_like(x);
  for (int i = 0; i < 4; ++i) {
    y += weights.select(1, i).unsqueeze(1) * x.mm(weight("expert" + std::to_string(i)));
  }
  std::int64_t seen = 0;
  for (std::int64_t k = 0; k < 3; ++k) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const at::Tensor mine = label.eq(k).logical_and(weights.select(1, i).gt(0));
      const auto got = [&](const char* result) { return experts[0].tensor(result)[k][i].to(at::kFloat); };
      BOOST_TEST(got("expert.count").item<float>() == mine.sum().item<float>());
      seen += mine.sum().item<std::int64_t>();
      if (mine.sum().item<std::int64_t>() < 2) continue;
      BOOST_TEST(near(got("moments.mean"), y.index({mine}).mean(0)));
      BOOST_TEST(near(got("moments.variance"), y.index({mine}).var(0)));
      BOOST_TEST(near(got("map.value"), weights.index({mine}).select(1, i).mean()));
    }
  }
  BOOST_TEST(seen == 2 * 5 * 16);
}
#endif

/// Hooked through its entries, of which each is an outermost call.
BOOST_AUTO_TEST_CASE(of_a_sequential) {
  at::manual_seed(8);
  torch::nn::Sequential net(torch::nn::Linear(6, 5), torch::nn::Tanh(), torch::nn::Linear(5, 4));
  ForwardOutput recorder(RecorderOptions().with("theirs", output("/2")).reduction(CrossCovariance("theirs")));
  recorder.attach(net, torchtap::selectors::names("0"));
  CrossCovariance want("theirs");
  for (const auto& x : inputs()) {
    const at::Tensor y = net->forward(x).detach();
    const Context named("theirs", y);
    const auto first = std::dynamic_pointer_cast<torch::nn::LinearImpl>(net->ptr(0));
    want.update(torch::nn::functional::linear(x, first->weight, first->bias).detach());
  }
  BOOST_TEST(recorder[0].samples() == 5);
  BOOST_TEST(recorder[0].unmatched() == 0);
  BOOST_TEST(near(recorder[0].tensor("covariance"), want.covariance()));
}

BOOST_AUTO_TEST_CASE(mistakes_are_errors_when_attaching) {
  Net net;
  const auto attach = [&](RecorderOptions options, const std::string& path = "moe.first") {
    return error_of([&] {
      ForwardOutput recorder(std::move(options));
      recorder.attach(net, torchtap::selectors::names(path));
    });
  };
  const auto cross = CrossCovariance("theirs");
  auto error = attach(RecorderOptions().with("theirs", output("../secnd")).reduction(cross));
  BOOST_TEST_CONTEXT(error)
  BOOST_TEST(contains(error, "\"moe.secnd\", and there is no such module; the nearest are \"moe.second\""));
  error = attach(RecorderOptions().with("theirs", output("../../../x")).reduction(cross));
  BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "leads above the root"));
  error = attach(RecorderOptions().with("other", output("../second")).reduction(cross));
  BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "it looks up \"theirs\""));
  error = attach(RecorderOptions().with("theirs", output("../second")));
  BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "no reduction looks up"));
  error = error_of([&] { RecorderOptions().with("a", output()).with("a", output()); });
  BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "\"a\" is named twice"));
  error = error_of([&] {
    BackwardOutput recorder(RecorderOptions().with("theirs", output("../second")).reduction(cross));
    recorder.attach(net, torchtap::selectors::names("moe.first"));
  });
  BOOST_TEST_CONTEXT(error) BOOST_TEST(contains(error, "cannot be used with gradients"));
  ForwardOutput slot(RecorderOptions().with("theirs", output("../second", 2)).reduction(cross));
  slot.attach(net, torchtap::selectors::names("moe.first"));
  error = error_of([&] { net->forward(inputs(1)[0]); });
  BOOST_TEST_CONTEXT(error)
  BOOST_TEST(contains(error, "output(\"../second\", 2) is tensor 2 of \"moe.second\""));
}

BOOST_AUTO_TEST_CASE(a_recorder_may_end_in_the_map_of_a_companion) {
  for (const bool destroyed : {false, true}) {
    torch::nn::Sequential model{torch::nn::Identity(), torch::nn::Identity()};
    std::unique_ptr<ForwardPre> recorder;
    ForwardPre next;
    int calls = 0;
    const auto mapped = [&](const at::Tensor& x) {
      if (++calls == 1) {
        next.attach(model, "0");
        recorder->detach();
        if (destroyed) recorder.reset();
      }
      return at::zeros({x.size(0)}, at::kLong);
    };
    recorder = std::make_unique<ForwardPre>(RecorderOptions()
                                                .reduction(by("key", 2, Sum(SumOptions().over({0}))))
                                                .with("key", output("/1").map(mapped)));
    recorder->attach(model, "0");
    BOOST_TEST_CONTEXT((destroyed ? "destroyed" : "detached")) {
      for (int i = 0; i < 3; ++i) BOOST_CHECK_NO_THROW(model->forward(at::ones({2, 3})));
      BOOST_TEST(calls == 1);
      BOOST_TEST((recorder == nullptr) == destroyed);
      BOOST_TEST(next[0].samples() >= 1);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
