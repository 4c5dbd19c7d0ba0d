// Recorders that spool, at once or when a memory budget is used up.
#include <boost/test/unit_test.hpp>
#include <signal.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <filesystem>
#include <sstream>
#include <thread>

#include <torchtap/torchtap.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(spooled_recorder)

namespace tap = torchtap;
using tap::recorders::BackwardOutput;
using tap::recorders::ForwardInput;
using tap::recorders::ForwardOutput;
using tap::recorders::OverBudget;
using tap::recorders::Recorder;
using tap::recorders::RecorderOptions;
using tap::storage::load;
using tap::storage::SaveOptions;
using tap::storage::SpoolOptions;
using torchtap_test::says;
using Folder = torchtap_test::TemporaryDirectory;

namespace {

torch::nn::Sequential mlp() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::ReLU(), torch::nn::Linear(5, 4));
}

SpoolOptions spooling() {
  return SpoolOptions().mkdir(true).sync(false);
}

/// A spooled recorder and one that keeps everything, on the same model.
struct Pair {
  explicit Pair(const RecorderOptions& options) : spooled(options) {
    spooled.modules(*model);
    kept.modules(*model);
  }
  void run(int steps) {
    for (int i = 0; i < steps; ++i, ++calls) model->forward(torch::randn({1 + calls % 2, 6}));
  }
  bool agree(const std::string& directory, std::size_t from = 0) const {
    const auto recording = load(directory);
    if (recording.size() != 4) return false;
    for (std::int64_t i = 0; i < 4; ++i) {
      const auto want = kept[i].tensors();
      const auto got = recording.at(i).tensors();
      if (got.size() != want.size() - from || recording.at(i).path() != kept[i].name()) return false;
      for (std::size_t k = 0; k < got.size(); ++k) {
        if (!got[k].equal(want[k + from])) return false;
      }
    }
    return true;
  }

  torch::nn::Sequential model = mlp();
  ForwardOutput spooled;
  ForwardOutput kept;
  int calls = 0;
};

}  // namespace

BOOST_AUTO_TEST_CASE(spooled_samples_equal_kept_samples) {
  const Folder folder;
  {
    Pair pair(RecorderOptions().spool(folder / "rec", spooling().shard_bytes(500)));
    pair.run(50);
    BOOST_TEST(pair.spooled[1].samples() == 50);
    BOOST_TEST(pair.spooled.samples() == 200);
    pair.spooled.flush();
    BOOST_TEST(pair.agree(folder / "rec"));
    BOOST_TEST(!load(folder / "rec").complete());
    // Read back while recording continues.
    BOOST_TEST(pair.spooled[2].tensors().size() == 50u);
    BOOST_TEST(pair.spooled[2].tensors()[49].equal(pair.kept[2].tensors()[49]));
    pair.run(50);
    pair.spooled.save(folder / "rec");
    BOOST_TEST(pair.agree(folder / "rec"));
    pair.run(7);
    // A recorder that is moved continues.
    ForwardOutput moved = std::move(pair.spooled);
    pair.run(7);
    BOOST_TEST(moved[0].samples() == 114);
    {
      ForwardOutput other(RecorderOptions().spool(folder / "other", spooling()));
      other.modules(*pair.model);
      pair.run(1);
      other = std::move(moved);  // finishes its own recording
      BOOST_TEST(load(folder / "other").complete());
      BOOST_TEST(load(folder / "other").at(0).samples() == 1);
      pair.run(1);
    }
    BOOST_TEST(pair.agree(folder / "rec"));
    BOOST_TEST(load(folder / "rec").complete());
    pair.run(1);  // the hooks are gone
    pair.spooled = ForwardOutput();
  }
  BOOST_TEST(load(folder / "rec").at(0).samples() == 116);
  std::int64_t count = 0;
  for (const at::Tensor& sample : load(folder / "rec").at("1").each_tensor()) count += sample.size(0) > 0;
  BOOST_TEST(count == 116);
}

BOOST_AUTO_TEST_CASE(calls_that_spooled_samples_do_not_allow_are_errors_that_change_nothing) {
  const Folder folder;
  Pair pair(RecorderOptions().spool(folder / "rec", spooling()));
  pair.run(10);
  std::stringstream stream;
  pair.kept.snapshot(stream);
  const auto identity = [](const at::Tensor& tensor) { return tensor; };
  BOOST_CHECK_EXCEPTION(pair.spooled.reset(), c10::ValueError, says({"reset", "spooled to", "/rec"}));
  BOOST_CHECK_THROW(pair.spooled.apply(identity), c10::ValueError);
  BOOST_CHECK_THROW(pair.spooled[0].set(tap::core::Value()), c10::ValueError);
  BOOST_CHECK_THROW(pair.spooled.merge(pair.kept), c10::ValueError);
  BOOST_CHECK_THROW(pair.kept.merge(pair.spooled), c10::ValueError);
  BOOST_CHECK_THROW(pair.spooled.restore(stream), c10::ValueError);
  BOOST_CHECK_THROW(pair.spooled.snapshot(stream), c10::ValueError);
  BOOST_CHECK_THROW(pair.spooled.entries(), c10::ValueError);
  BOOST_CHECK_EXCEPTION(pair.spooled.save(folder / "elsewhere", SaveOptions().mkdir(true)), c10::ValueError,
                        says({"/rec", "elsewhere"}));
  BOOST_CHECK_THROW(
      ForwardOutput(RecorderOptions().spool(folder / "x", spooling()).reduction(tap::reductions::Sum())),
      c10::ValueError);
  BOOST_CHECK_EXCEPTION(ForwardOutput(RecorderOptions().spool(folder / "rec", spooling())), c10::ValueError,
                        says({"another recorder"}));
  BOOST_CHECK_THROW(RecorderOptions().spool(""), c10::ValueError);
  BOOST_CHECK_THROW(RecorderOptions().memory_budget(-1), c10::ValueError);
  BOOST_TEST(pair.spooled.remove(1).is_none());  // its samples stay on disk
  pair.run(5);
  pair.spooled.save(folder / "rec");
  const auto recording = load(folder / "rec");
  BOOST_TEST(recording.size() == 4u);
  BOOST_TEST(recording.at(1).samples() == 10);
  BOOST_TEST(recording.at(2).samples() == 15);
}

BOOST_AUTO_TEST_CASE(append_continues_a_recording) {
  const Folder folder;
  Pair first(RecorderOptions().spool(folder / "rec", spooling()));
  first.run(10);
  first.spooled = ForwardOutput();
  {
    ForwardOutput second(RecorderOptions().spool(folder / "rec", spooling().append(true)));
    second.modules(*first.model);
    first.run(10);
  }
  BOOST_TEST(first.agree(folder / "rec"));
}

BOOST_AUTO_TEST_CASE(gradients_all_tensors_and_transforms_are_spooled) {
  const Folder folder;
  auto model = mlp();
  {
    BackwardOutput gradients(RecorderOptions().spool(folder / "gradients", spooling()));
    ForwardInput inputs(RecorderOptions().spool(folder / "inputs", spooling()).all_tensors());
    ForwardOutput means(RecorderOptions()
                            .spool(folder / "means", spooling())
                            .capture(tap::recorders::Capture::alias)
                            .dtype(at::kDouble)
                            .transform([](const at::Tensor& tensor) { return tensor.mean(); }));
    BackwardOutput kept;
    for (Recorder* recorder : std::initializer_list<Recorder*>{&gradients, &inputs, &means, &kept}) {
      recorder->modules(*model);
    }
    for (int i = 0; i < 20; ++i)
      model->forward(torch::randn({3, 6}, torch::requires_grad())).sum().backward();
    BOOST_TEST(inputs[2].slots() == 1);
    BOOST_TEST(inputs[2].slot(0).list().size() == 20u);
    BOOST_TEST(means[3].tensors()[0].scalar_type() == at::kDouble);
    gradients.save(folder / "gradients");
    const auto got = load(folder / "gradients").at(2).tensors();
    const auto want = kept[2].tensors();
    BOOST_TEST(got.size() == want.size());
    for (std::size_t i = 0; i < got.size(); ++i) BOOST_TEST(got[i].equal(want[i]));
  }
  BOOST_TEST(load(folder / "inputs").at(1).value().at("0").list().size() == 20u);
  BOOST_TEST(load(folder / "means").at(1).dtype() == "float64");
}

BOOST_AUTO_TEST_CASE(threads_spool_at_the_same_time) {
  const Folder folder;
  auto model = mlp();
  {
    ForwardOutput recorder(RecorderOptions().spool(folder / "rec", spooling().shard_bytes(3000)));
    recorder.modules(*model);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          model->forward(torch::ones({1, 6}));
          if (i % 30 == 0) recorder.flush();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  const auto recording = load(folder / "rec");
  for (const auto& entry : recording) BOOST_TEST(entry.samples() == 400);
}

BOOST_AUTO_TEST_CASE(a_failing_disk_is_reported_at_an_event_and_loses_nothing) {
  const Folder folder;
  struct rlimit old {};
  BOOST_REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  {
    Pair pair(RecorderOptions().spool(folder / "rec", spooling()));
    const struct rlimit now { 20000, old.rlim_max };
    BOOST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &now) == 0);
    bool failed = false;
    while (!failed) {
      try {
        pair.run(1);
      } catch (const c10::Error& error) {
        failed = true;
        BOOST_TEST(says({"File too large", "while recording ForwardOutput"})(error));
      }
    }
    BOOST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    pair.spooled.flush();
    const auto samples = pair.spooled[0].samples();
    BOOST_TEST(load(folder / "rec").at(0).samples() == samples);
    pair.run(1);
    BOOST_TEST(pair.spooled[0].samples() == samples + 1);
  }
  ::signal(SIGXFSZ, old_handler);
}

BOOST_AUTO_TEST_CASE(a_budget_raises_or_drops) {
  auto model = mlp();
  const auto input = torch::ones({1000, 6});  // more than 20 000 bytes per module
  ForwardOutput raising(RecorderOptions().memory_budget(200000));
  raising.modules(*model);
  int kept = 0;
  BOOST_CHECK_EXCEPTION(for (;; ++kept) model->forward(input), c10::Error,
                        says({"memory budget of 200000 bytes", "not recorded", "while recording"}));
  BOOST_TEST(kept >= 2);
  BOOST_TEST(kept <= 4);
  BOOST_TEST(raising[0].tensors().size() >= static_cast<std::size_t>(kept));
  raising.reset();  // makes room
  model->forward(input);
  BOOST_TEST(raising[3].samples() == 1);
  raising.detach();

  ForwardOutput dropping(RecorderOptions().memory_budget(200000, OverBudget::drop));
  dropping.modules(*model);
  for (int i = 0; i < 20; ++i) model->forward(input);
  BOOST_TEST(dropping.samples() + dropping.dropped() == 80);
  BOOST_TEST(dropping.dropped() > 60);
  std::size_t bytes = 0;
  for (const auto& recorder : dropping) {
    for (const auto& sample : recorder.tensors()) bytes += sample.nbytes();
    BOOST_TEST(recorder.events() == 20);
  }
  BOOST_TEST(bytes <= 200000u);
  BOOST_TEST(bytes >= 150000u);
  // Removing a subrecorder makes room.
  const auto before = dropping.samples();
  const auto removed = dropping[0].samples();
  dropping.remove(0);
  model->forward(input);
  BOOST_TEST(dropping.samples() > before - removed);
}

BOOST_AUTO_TEST_CASE(a_budget_spills) {
  const Folder folder;
  for (const std::int64_t budget : {0, 3000, 100000000}) {
    BOOST_TEST_CONTEXT("budget " << budget) {
      const std::string directory = folder / std::to_string(budget);
      {
        Pair pair(RecorderOptions().memory_budget(budget, directory, spooling()));
        BOOST_TEST(!std::filesystem::exists(directory));
        pair.run(100);
        BOOST_TEST(std::filesystem::exists(directory) == (budget < 100000000));
        BOOST_TEST(pair.spooled[1].samples() == 100);
        BOOST_TEST(pair.spooled[1].tensors().size() == 100u);
        BOOST_TEST(pair.spooled[1].tensors()[99].equal(pair.kept[1].tensors()[99]));
        pair.spooled.save(directory, SaveOptions().mkdir(true));
        BOOST_TEST(pair.agree(directory));
        if (budget == 100000000) continue;
        pair.run(10);
        // The destructor spools the samples of a module that was not called after the spool was opened.
        pair.spooled = ForwardOutput();
        BOOST_TEST(pair.agree(directory));
      }
      BOOST_TEST(load(directory).complete());
    }
  }
}

BOOST_AUTO_TEST_CASE(attaching_that_fails_leaves_no_entries) {
  const Folder folder;
  struct OpaqueImpl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x; }
  };
  auto model = mlp();
  {
    ForwardOutput recorder(RecorderOptions().spool(folder / "rec", spooling()));
    OpaqueImpl opaque;
    BOOST_CHECK_THROW(recorder.modules(opaque), c10::ValueError);
    recorder.modules(*model);
    model->forward(torch::ones({1, 6}));
  }
  BOOST_TEST(load(folder / "rec").size() == 4u);
  BOOST_TEST(load(folder / "rec").at("2").samples() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
