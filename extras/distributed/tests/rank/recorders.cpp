// Scenarios: recorders of models whose ranks saw parts of the data, or had parts of the model.
#include <ATen/Functions.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "support.hpp"

namespace rank_test {
namespace {

using namespace torchtap::recorders;
using namespace torchtap::reductions;
using tap::distributed::Group;

torch::nn::Sequential model() {
  at::manual_seed(5);
  return torch::nn::Sequential(
      {{"in", torch::nn::Linear(6, 8)}, {"act", torch::nn::Tanh()}, {"out", torch::nn::Linear(8, 3)}});
}

std::vector<at::Tensor> batches(int rank, int size) {
  const auto generator = at::detail::createCPUGenerator(3);
  std::vector<at::Tensor> mine;
  for (int i = 0; i < 24; ++i) {
    const at::Tensor batch = at::randn({4, 6}, generator) + 0.1 * i;
    if (i % size == rank) mine.push_back(batch);
  }
  return mine;
}

RecorderOptions statistics() {
  return RecorderOptions().reduction(Series(Moments(MomentsOptions().over({0})), LogHistogram(), Count()));
}

/// What a recorder has, module by module.
void describe(const Recorder& recorder) {
  for (const auto& one : recorder) {
    std::ostringstream text;
    text << one.value();
    std::string state;
    for (const auto& entry : recorder.entries()) {
      if (entry.path != one.path()) continue;
      for (const auto& saved : entry.state) state += saved.bytes;
    }
    say("module ", one.path(), " ", one.samples(), " ", one.events(), " ", digest(state), " ",
        digest(text.str()));
  }
}

/// One process that has the recorders of all ranks and merges them in their order.
void expect(const Recorder& got, const RecorderOptions& options, int size) {
  torch::NoGradGuard no_grad;
  auto net = model();
  ForwardOutput all(options);
  all.attach(net);
  for (int rank = 0; rank < size; ++rank) {
    ForwardOutput one(options);
    one.attach(net);
    all.detach();
    for (const at::Tensor& batch : batches(rank, size)) net->forward(batch);
    all.merge(one);
  }
  bool same = true;
  for (const auto& one : all) {
    same = same && got.at(one.path()).value() == one.value() && got.at(one.path()).samples() == one.samples();
  }
  say("as-one-process ", same && all.size() == got.size() ? "yes" : "NO");
}

tap::distributed::MergeRanksOptions limits() {
  return tap::distributed::MergeRanksOptions().timeout(std::chrono::seconds(60));
}

void run(const RecorderOptions& how, const tap::distributed::MergeRanksOptions& options, bool reversed) {
  torch::NoGradGuard no_grad;
  const Group group = make_group(std::chrono::seconds(60));
  auto net = model();
  ForwardOutput recorder(how);
  if (reversed && group.rank() % 2 == 1) {
    for (const char* path : {"out", "act", "in", ""}) recorder.attach(net, tap::selectors::names(path));
  } else {
    recorder.attach(net);
  }
  for (const at::Tensor& batch : batches(group.rank(), group.size())) net->forward(batch);
  tap::distributed::merge_ranks(recorder, group, options);
  expect(recorder, how, group.size());
  describe(recorder);
  // It records on.
  recorder.reset();
  net->forward(batches(0, 1).front());
  say("afterwards ", recorder.samples());
}

/// Ranks of a pipeline have modules of their own, and one in common.
void pipeline() {
  torch::NoGradGuard no_grad;
  const Group group = make_group(std::chrono::seconds(60));
  const std::string own = "stage" + std::to_string(group.rank());
  torch::nn::Sequential net({{"shared", torch::nn::Tanh()}, {own, torch::nn::ReLU()}});
  ForwardOutput recorder(statistics());
  recorder.attach(net, tap::selectors::leaves());
  for (const at::Tensor& batch : batches(group.rank(), group.size())) net->forward(batch);
  const at::Tensor mine = recorder.at(own).tensor("moments.mean");
  tap::distributed::merge_ranks(recorder, group, limits());
  say("paths ", recorder.size(), " first ", recorder.at("shared").samples());
  say("own ", recorder[1].path() == own && recorder[1].tensor("moments.mean").equal(mine) ? "kept" : "LOST");
  describe(recorder);
  // What came from other ranks saves like the rest, and records once it has a module.
  recorder.save(variable("RANKS_FILE") + ".saved" + std::to_string(group.rank()),
                tap::storage::SaveOptions().mkdir(true).sync(false));
  torch::nn::Sequential other({{"stage", torch::nn::ReLU()}});
  const auto before = recorder[2].samples();
  recorder.replace(2, tap::selectors::modules(*other).vector().at(1));
  other->forward(batches(0, 1).front());
  say("replaced ", recorder[2].samples() - before);
}

/// Some ranks have no recorder, or one that is attached to nothing.
void without() {
  torch::NoGradGuard no_grad;
  const Group group = make_group(std::chrono::seconds(60));
  if (group.rank() == 1) {
    tap::distributed::merge_ranks(group, limits());
    return say("nothing");
  }
  auto net = model();
  ForwardOutput recorder(statistics());
  if (group.rank() != 2) recorder.attach(net);
  for (const at::Tensor& batch : batches(group.rank(), group.size())) net->forward(batch);
  for (int i = 0; i < group.rank(); ++i) net->forward(at::zeros({3, 6}));  // of another shape
  tap::distributed::merge_ranks(recorder, group, limits());
  say("samples ", recorder.samples());
  if (!recorder.empty()) say("note ", recorder.at("in").note());
  describe(recorder);
}

void nobody() {
  const Group group = make_group(std::chrono::seconds(60));
  tap::distributed::merge_ranks(group, limits());
  say("done");
}

void kept() {
  torch::NoGradGuard no_grad;
  const Group group = make_group(std::chrono::seconds(60));
  auto net = model();
  ForwardOutput recorder;
  recorder.attach(net, tap::selectors::names("out"));
  // Batches of different sizes, some of them large enough to travel on their own.
  const std::int64_t rows = group.rank() == 1 ? 20000 : 2;
  for (int i = 0; i < 3; ++i) net->forward(at::full({rows, 6}, 0.01 * (i + 10 * group.rank())));
  std::vector<at::Tensor> expected;
  for (int rank = 0; rank < group.size(); ++rank) {
    for (int i = 0; i < 3; ++i) {
      expected.push_back(net->forward(at::full({rank == 1 ? 20000 : 2, 6}, 0.01 * (i + 10 * rank))));
    }
  }
  recorder.reset();
  for (int i = 0; i < 3; ++i) net->forward(at::full({rows, 6}, 0.01 * (i + 10 * group.rank())));
  tap::distributed::merge_ranks(recorder, group, limits().samples(std::int64_t{64} << 20));
  const auto samples = recorder.at("out").tensors();
  bool same = samples.size() == expected.size();
  for (std::size_t i = 0; same && i < samples.size(); ++i) same = samples[i].equal(expected[i]);
  say("kept ", samples.size(), " ", same ? "same" : "DIFFERS");
}

/// A rank of the group is a Python program, which takes part without data.
void with_python() {
  torch::NoGradGuard no_grad;
  const Group group = make_group(std::chrono::seconds(60));
  auto net = model();
  ForwardOutput recorder(RecorderOptions().reduction(Series(Moments(), Max())));
  recorder.attach(net);
  for (int i = 0; i < 3; ++i) net->forward(at::full({20000, 6}, 0.1 * (i + group.rank())));
  tap::distributed::merge_ranks(recorder, group, limits());
  describe(recorder);
  recorder.detach();
  // A callable's state cannot be cut, and one state alone is the root's.
  ForwardOutput sum(
      RecorderOptions().reduction([](const at::Tensor& a, const at::Tensor& b) { return a + b; }));
  sum.attach(net, tap::selectors::names("in"));
  net->forward(at::full({50000, 6}, 0.1));
  tap::distributed::merge_ranks(sum, group, limits());
  describe(sum);
  ForwardOutput keeps;
  keeps.attach(net);
  try {
    tap::distributed::merge_ranks(keeps, group, limits());
  } catch (const c10::ValueError& error) {
    say("error ", error.what_without_backtrace());
  }
}

/// States that cannot be cut, which ranks share among them, and states of which each merges a part.
void entries() {
  torch::NoGradGuard no_grad;
  const auto order =
      variable("RANKS_ORDER") == "tree" ? tap::distributed::Order::tree : tap::distributed::Order::ranks;
  const auto options = limits().order(order).root(1).everywhere(variable("RANKS_EVERYWHERE") != "no");
  const Group group = make_group(std::chrono::seconds(60));
  at::manual_seed(5);
  torch::nn::Sequential net({{"a", torch::nn::Linear(6, 200)},
                             {"b", torch::nn::Tanh()},
                             {"c", torch::nn::Linear(200, 300)},
                             {"d", torch::nn::Linear(300, 5)}});
  // A rank of four has no data, and some have their modules in another order.
  const auto fed = [&](const RecorderOptions& how, int rank, bool reversed) {
    ForwardOutput recorder(how);
    for (const char* path : {"d", "c", "b", "a"}) {
      if (reversed) recorder.attach(net, tap::selectors::names(path));
    }
    if (!reversed) recorder.attach(net, tap::selectors::names({"a", "b", "c", "d"}));
    for (int i = 0; i < 3 && rank != 2; ++i) {
      net->forward(at::randn({900, 6}, at::detail::createCPUGenerator(7 * rank + i)) + rank);
    }
    recorder.detach();  // the next one's forwards are not for it
    return recorder;
  };
  for (const auto& [name, how] : std::vector<std::pair<const char*, RecorderOptions>>{
           {"covariance", RecorderOptions().reduction(Covariance(CovarianceOptions().over({0})))},
           {"moments", RecorderOptions().reduction(Moments())}}) {
    ForwardOutput mine = fed(how, group.rank(), group.rank() % 2 == 1);
    tap::distributed::merge_ranks(mine, group, options);
    ForwardOutput expected = fed(how, 0, false);
    for (int rank = 1; rank < group.size(); ++rank) expected.merge(fed(how, rank, false));
    bool same = true;
    for (const auto& one : mine) {
      same = same && one.value() == expected.at(one.path()).value();
    }
    say(name, " ", mine.samples(), " ", same ? "same" : "DIFFERS");
    describe(mine);
  }
}

/// Modules with several outputs, of which ranks saw different numbers.
void slots() {
  const Group group = make_group(std::chrono::seconds(60));
  torch::nn::Sequential net({{"in", torch::nn::Linear(6, 3)}});
  BackwardOutput gradients(RecorderOptions().all_tensors().reduction(Sum()));
  gradients.attach(net);
  if (group.rank() != 0) {
    for (const at::Tensor& batch : batches(group.rank(), group.size())) net->forward(batch).sum().backward();
  }
  tap::distributed::merge_ranks(gradients, group, limits());
  say("slots ", gradients.at("in").slots(), " samples ", gradients.at("in").samples());
  describe(gradients);
}

}  // namespace

void add_recorders(std::map<std::string, Scenario>& all) {
  all["recorder"] = [] { run(statistics(), limits(), false); };
  all["reversed"] = [] { run(statistics(), limits(), true); };
  all["recorder-callable"] = [] {
    run(RecorderOptions().reduction([](const at::Tensor& a, const at::Tensor& b) { return a + b; }), limits(),
        false);
  };
  all["recorder-tree"] = [] {
    run(RecorderOptions().reduction(Series(Min(), Max(), Count(), First(), Last())),
        limits().order(tap::distributed::Order::tree).root(1), true);
  };
  all["pipeline"] = pipeline;
  all["without"] = without;
  all["nobody"] = nobody;
  all["with-python"] = with_python;
  all["kept"] = kept;
  all["slots"] = slots;
  all["entries"] = entries;
}

}  // namespace rank_test
