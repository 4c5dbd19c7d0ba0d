// Moving and assigning recorders.
#include <torch/torch.h>

#include <optional>
#include <sstream>
#include <type_traits>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/walk.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(moved)

using namespace torchtap_test;
using namespace torchtap::recorders;
using torchtap::reductions::Sum;

// Assigning through the base class could make a recorder of outputs one of gradients.
static_assert(!std::is_move_assignable_v<Recorder> && !std::is_copy_assignable_v<Recorder>);
static_assert(std::is_nothrow_move_assignable_v<ForwardOutput>);
static_assert(!std::is_assignable_v<ForwardOutput&, BackwardInput>);
static_assert(std::is_nothrow_move_constructible_v<ForwardOutput>);

namespace {

torch::nn::Sequential model() {
  return torch::nn::Sequential(torch::nn::Identity(), torch::nn::ReLU());
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_call_of_a_recorder_that_was_moved_from_is_an_error) {
  auto net = model();
  ForwardOutput from(Sum{});
  from.modules(*net);
  net->forward(torch::ones({2}));
  ForwardOutput to(std::move(from));
  BOOST_TEST(to.size() == 3);
  BOOST_TEST(to.samples() == 3);

  // Queries find nothing.
  BOOST_TEST(from.kind() == "ForwardOutput");
  BOOST_TEST(from.options().reduction() == to.options().reduction());
  BOOST_TEST(from.size() == 0);
  BOOST_TEST(from.empty());
  BOOST_TEST(from.samples() == 0);
  BOOST_TEST(from.dropped() == 0);
  BOOST_TEST(from.indices().empty());
  BOOST_TEST((from.begin() == from.end()));
  BOOST_TEST((from.cbegin() == from.cend()));
  from.detach();

  const TemporaryDirectory directory;
  std::stringstream stream;
  torch::nn::AnyModule any{torch::nn::ReLU()};
  const torch::jit::Module script("script");
  const auto refs = torchtap::selectors::modules(*net).vector();
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"attach", [&] { from.modules(*net); }},
      {"attach", [&] { from.children(*net); }},
      {"attach", [&] { from.attach(refs); }},
      {"attach", [&] { from.attach(net); }},
#ifdef TORCHTAP_TEST_TORCHSCRIPT
      {"attach", [&] { from.modules(script); }},
      {"attach", [&] { from.children(script); }},
      {"attach", [&] { from.attach(script); }},
#endif
      {"attach", [&] { from.attach(torchtap::selectors::children(net)); }},
      {"replace", [&] { from.replace(0, refs[0]); }},
      {"Scope", [&] { const Scope scope(from); }},
      {"module", [&] { from.module(any); }},
      {"operator[]", [&] { from[0]; }},
      {"operator[]", [&] { std::as_const(from)[0]; }},
      {"at", [&] { from.at("0"); }},
      {"at", [&] { std::as_const(from).at("0"); }},
      {"remove", [&] { from.remove(0); }},
      {"reset", [&] { from.reset(); }},
      {"apply", [&] { from.apply([](const at::Tensor& x) { return x; }); }},
      {"apply_sample", [&] { from.apply_sample([](const at::Tensor& x, std::int64_t) { return x; }); }},
      {"merge", [&] { from.merge(to); }},
      {"merge", [&] { to.merge(from); }},
      {"until_recorded", [&] { from.until_recorded([] {}); }},
      {"save", [&] { from.save(directory / "rec", torchtap::storage::SaveOptions().mkdir(true)); }},
      {"flush", [&] { from.flush(); }},
      {"entries", [&] { from.entries(); }},
      {"snapshot", [&] { from.snapshot(stream); }},
      {"snapshot", [&] { from.snapshot(directory / "state"); }},
      {"restore", [&] { from.restore(stream); }},
      {"restore", [&] { from.restore(directory / "state"); }},
  };
  for (const auto& [name, call] : calls) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_CHECK_EXCEPTION(call(), c10::ValueError, says({"ForwardOutput::" + name, "was moved"}));
    }
  }
  BOOST_TEST(fs::is_empty(directory.path()));
  net->forward(torch::ones({2}));
  BOOST_TEST(to.samples() == 6);

  from = ForwardOutput(Sum{});  // usable again after an assignment
  from.modules(*net);
  net->forward(torch::ones({2}));
  BOOST_TEST(from.samples() == 3);
  BOOST_TEST(to.samples() == 9);
  to = std::move(from);  // moves its modules, too
  BOOST_TEST(to.samples() == 3);
  net->forward(torch::ones({2}));
  BOOST_TEST(to[0].tensor().equal(torch::full({2}, 2.0)));
  BOOST_CHECK_THROW(from.modules(*net), c10::ValueError);
  ForwardOutput gone(std::move(from));  // a second time
  BOOST_CHECK_THROW(gone.modules(*net), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(subrecorders_stay_where_they_are) {
  auto net = model();
  ForwardOutput from(Sum{});
  from.attach(net);
  Subrecorder& first = from[0];
  ForwardOutput to(std::move(from));
  BOOST_TEST(&to[0] == &first);
}

BOOST_AUTO_TEST_CASE(a_scope_follows_a_recorder_that_is_moved) {
  auto net = model();
  std::vector<ForwardOutput> recorders;
  recorders.emplace_back(Sum{});
  recorders[0].attach(net, torchtap::selectors::names("0"));
  {
    const Scope scope(recorders[0]);
    recorders[0].attach(net, torchtap::selectors::names("1"));
    recorders.reserve(recorders.capacity() + 1);  // moves it, and destroys the original
    net->forward(torch::ones({1}));
  }
  net->forward(torch::ones({1}));
  BOOST_TEST(recorders[0][0].samples() == 2);
  BOOST_TEST(recorders[0][1].samples() == 1);

  std::optional<ForwardOutput> gone(std::in_place, Sum{});
  {
    const Scope scope(*gone);
    gone->attach(net);
    gone.reset();
    net->forward(torch::ones({1}));
  }
  ForwardOutput other(Sum{});
  {
    const Scope scope(other);
    other = ForwardOutput(Sum{});  // destroys the scope's recorder
    other.attach(net);
  }
  net->forward(torch::ones({1}));
  BOOST_TEST(other.samples() == 3);
}

// Files are numbered as the remaining subrecorders; paths identify them.
BOOST_AUTO_TEST_CASE(files_are_numbered_by_the_remaining_subrecorders) {
  auto net = model();
  ForwardOutput outputs(Sum{});
  outputs.modules(*net);
  net->forward(torch::full({2}, -1.0));
  outputs.remove(0);
  const TemporaryDirectory directory;
  outputs.save(directory / "rec", torchtap::storage::SaveOptions().mkdir(true));
  const auto recording = torchtap::storage::load(directory / "rec");
  BOOST_TEST(recording.size() == 2u);
  BOOST_TEST(recording.at(0).path() == outputs[1].path());
  BOOST_TEST(recording.at(0).file() == directory / "rec/0.pt");
  for (auto& subrecorder : outputs) {
    BOOST_TEST(recording.at(subrecorder.path()).tensor().equal(subrecorder.tensor()));
  }
}

BOOST_AUTO_TEST_CASE(a_snapshot_replaces_the_older_one_as_a_whole) {
  auto net = model();
  ForwardOutput outputs(Sum{}), later(Sum{});
  outputs.modules(*net);
  later.modules(*net);
  const TemporaryDirectory directory;
  net->forward(torch::ones({2}));
  outputs.snapshot(directory / "state");
  net->forward(torch::ones({2}));
  outputs.snapshot(directory / "state");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory.path())) names.push_back(entry.path().filename());
  BOOST_TEST(names == std::vector<std::string>{"state"}, boost::test_tools::per_element());
  later.restore(directory / "state");
  BOOST_TEST(later[1].tensor().equal(torch::full({2}, 2.0)));
  BOOST_CHECK_EXCEPTION(outputs.snapshot(directory / "none/state"), c10::ValueError,
                        says({"ForwardOutput::snapshot", "none", "does not exist"}));
}

BOOST_AUTO_TEST_SUITE_END()
