// Each taker at its hardest: threads that begin and end run the model while another one reads, takes, saves,
// merges and attaches. No sample is lost, and none counts twice.
#include <boost/test/data/test_case.hpp>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(takers)

using namespace torchtap_test;
using namespace torchtap::recorders;
using namespace torchtap::reductions;
using torchtap::core::Value;

namespace {

/// The program's own reduction, of which nothing says that threads may fold apart.
struct OwnSum {
  template <class Archive>
  void serialize(Archive& archive) {
    archive(sum, seen);
  }

  at::Tensor sum;
  std::int64_t seen = 0;
  void update(const at::Tensor& sample) {
    sum = sum.defined() ? sum + sample : sample.clone();
    ++seen;
  }
  void merge(const OwnSum& other) {
    if (other.seen == 0) return;
    sum = sum.defined() ? sum + other.sum : other.sum.clone();
    seen += other.seen;
  }
  std::int64_t count() const { return seen; }
  torchtap::core::Results results() const {
    return seen == 0 ? torchtap::core::Results{} : torchtap::core::Results{{"value", sum}};
  }
};

constexpr std::int64_t kUncounted = -1;

/// A taker by the options that choose it. Samples are ones of 3 elements, so that `counted` of a value is the
/// number of samples.
struct Case {
  std::string name;
  std::function<RecorderOptions(const TemporaryDirectory&)> options;
  std::function<std::int64_t(const Value&)> counted;
  bool takes = true;  // what is on disk stays there, and with samples the counts of others go
};

std::int64_t sum_of(const Value& value) {
  return value.is_none() ? 0 : value.tensor()[0].item<std::int64_t>();
}
std::int64_t length_of(const Value& value) {
  return value.is_none() ? 0 : static_cast<std::int64_t>(value.list().size());
}

const auto kMade = torchtap::storage::SpoolOptions().mkdir(true);

const std::vector<Case> cases{
    {"Keep", [](const auto&) { return RecorderOptions(); }, length_of},
    {"KeepWithin, dropping",
     [](const auto&) { return RecorderOptions().memory_budget(10'000, OverBudget::drop); }, length_of, false},
    {"KeepWithin, then on disk",
     [](const TemporaryDirectory& place) {
       return RecorderOptions().memory_budget(10'000, place / "spooled", kMade);
     },
     length_of, false},
    {"KeepWithin, on disk",
     [](const TemporaryDirectory& place) { return RecorderOptions().spool(place / "spooled", kMade); },
     length_of, false},
    {"FoldBeside", [](const auto&) { return RecorderOptions().reduction(Sum{}); }, sum_of},
    {"Fold", [](const auto&) { return RecorderOptions().reduction(Last{}); },
     [](const Value& value) { return value.is_none() ? 0 : kUncounted; }},
    {"FoldOwn", [](const auto&) { return RecorderOptions().reduction(OwnSum{}); }, sum_of},
    {"FoldOwn, a function",
     [](const auto&) {
       return RecorderOptions().reduction(
           [](const at::Tensor& sum, const at::Tensor& sample) { return sum + sample; });
     },
     sum_of},
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.name;
}

}  // namespace

BOOST_DATA_TEST_CASE(no_sample_is_lost_or_counts_twice, boost::unit_test::data::make(cases), one) {
  constexpr int kThreads = 3, kLives = 12, kForwards = 40, kRefused = 5;
  const TemporaryDirectory place;
  torch::nn::Sequential model{torch::nn::Identity(), torch::nn::Identity()};
  std::atomic<std::int64_t> refused{0};
  ForwardOutput recorder(one.options(place).condition([&](const Sample& sample) {
    if (sample.tensor()[0].item<float>() == 1) return true;
    ++refused;
    return false;
  }));
  recorder.attach(model, torchtap::selectors::names("0"));
  std::atomic<int> running{kThreads};
  struct Threads : std::vector<std::thread> {
    ~Threads() {
      for (std::thread& thread : *this) thread.join();
    }
  };
  std::optional<Threads> threads(std::in_place);
  for (int t = 0; t < kThreads; ++t) {
    threads->emplace_back([&] {
      for (int life = 0; life < kLives; ++life) {  // what a thread has of a recorder ends with the thread
        std::thread([&] {
          for (int i = 0; i < kForwards; ++i) model->forward(torch::ones({3}));
          for (int i = 0; i < kRefused; ++i) model->forward(torch::zeros({3}));
        }).join();
      }
      --running;
    });
  }
  std::int64_t taken = 0;
  const auto& first = std::as_const(recorder)[0];
  const auto agrees = [&](const Value& value, std::int64_t samples) {
    const std::int64_t counted = one.counted(value);
    return counted == samples || counted == kUncounted;
  };
  for (int round = 0; running > 0; ++round) {
    try {
      for (const auto& entry : std::as_const(recorder).entries()) {
        BOOST_TEST(agrees(entry.value, entry.samples), "round " << round);
      }
      std::stringstream stream;
      recorder.snapshot(stream);
      ForwardOutput restored(one.options(place));
      restored.attach(model, torchtap::selectors::names("0")).detach();
      restored.restore(stream);
      BOOST_TEST(agrees(restored[0].value(), restored[0].samples()));
      recorder.save(place / "saved", torchtap::storage::SaveOptions().mkdir(true).overwrite(true));
      if (one.takes) taken += one.counted(recorder[0].take());
    } catch (const c10::ValueError& error) {
      BOOST_TEST(torchtap_test::says({"are spooled"})(error), error.what());
      const std::int64_t before = first.samples(), counted = one.counted(first.value());
      BOOST_TEST((before <= counted && counted <= first.samples()));
    }
    BOOST_TEST(first.samples() <= first.events());
    ForwardOutput another;  // hooks of others come and go
    another.attach(model, torchtap::selectors::names("0"));
  }
  threads.reset();
  constexpr std::int64_t kAll = std::int64_t{kThreads} * kLives * kForwards;
  BOOST_TEST(refused == kThreads * kLives * kRefused);
  BOOST_TEST(first.left_out() == 0);
  const std::int64_t last = one.counted(first.value());
  BOOST_TEST(agrees(first.value(), first.samples()));
  if (last != kUncounted && taken >= 0) BOOST_TEST(taken + last + first.dropped() == kAll);
  BOOST_TEST(first.note().empty() == (first.dropped() == 0), first.note());
}

BOOST_AUTO_TEST_CASE(a_module_that_was_removed_stays_in_memory_when_the_others_go_to_disk) {
  const TemporaryDirectory place;
  torch::nn::Sequential model{torch::nn::Identity(), torch::nn::Identity()};
  ForwardOutput recorder(RecorderOptions().memory_budget(1'000, place / "spooled", kMade));
  recorder.attach(model, torchtap::selectors::names("?"));
  model->forward(torch::ones({3}));
  const Subrecorder removed = recorder[0];
  BOOST_TEST(length_of(recorder.remove(0)) == 1);
  for (int i = 0; i < 100; ++i) model->forward(torch::ones({3}));
  BOOST_TEST(removed.tensors().size() == 1U);
  BOOST_TEST(length_of(removed.slot(0)) == 1);
  BOOST_TEST(std::as_const(recorder)[1].tensors().size() == 101U);
}

BOOST_AUTO_TEST_SUITE_END()
