// The tensors of one event are folded all or none, also from several threads.
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(together)

using namespace torchtap_test;
using namespace torchtap::recorders;
using namespace torchtap::reductions;

namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

/// Returns two tensors.
struct PairImpl : torch::nn::Module {
  Two forward(const at::Tensor& first, const at::Tensor& second) { return {first, second}; }
};
TORCH_MODULE(Pair);

/// The members that both reductions of this test have; they sum samples of 3 elements.
class Three {
 public:
  void merge(const Three& other) {
    if (other.seen_ == 0) return;
    sum_ = sum_.defined() ? sum_ + other.sum_ : other.sum_.clone();
    seen_ += other.seen_;
  }
  std::int64_t count() const { return seen_; }
  torchtap::core::Results results() const {
    return seen_ == 0 ? torchtap::core::Results{} : torchtap::core::Results{{"value", sum_}};
  }

 protected:
  static void refuse(const at::Tensor& sample) {
    TORCH_CHECK_VALUE(!sample.is_sparse() && sample.numel() == 3, "Three: expected 3 elements, got ",
                      sample.numel(), ".");
  }
  void add(const at::Tensor& sample) {
    refuse(sample);
    sum_ = sum_.defined() ? sum_ + sample : sample.clone();
    ++seen_;
  }

 private:
  at::Tensor sum_;
  std::int64_t seen_ = 0;
};

/// A reduction without `check`, so that only an update finds an incompatible sample.
struct Picky : Three {
  void update(const at::Tensor& sample) { add(sample); }
};

/// Makes two threads fold into one record at the same time.
struct Meeting {
  std::atomic<std::thread::id> first{};  // holds the record's lock until the other one arrives
  std::atomic<std::thread::id> second{};
  std::atomic<bool> inside{false}, come{false};
  std::atomic<int> fresh{0};  // sinks that were made for threads
};

/// The same, from several threads in parallel. With `Checks`, it checks samples first.
template <bool Checks>
struct Meet : Three {
  explicit Meet(Meeting* meeting) : meeting(meeting) {}
  template <class T = void, class = std::enable_if_t<Checks, T>>
  void check(const at::Tensor& sample) const {
    refuse(sample);
  }
  void update(const at::Tensor& sample) {
    if (std::this_thread::get_id() == meeting->first.load()) {
      meeting->inside = true;
      while (!meeting->come) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    add(sample);
  }
  bool commutative() const { return true; }
  Meet fresh() const {
    ++meeting->fresh;
    return Meet(meeting);
  }

  Meeting* meeting;
};

template <bool Checks>
void check_threads_all_or_none() {
  Meeting meeting;
  torch::nn::Sequential model{Pair()};
  ForwardOutput outputs(RecorderOptions().all_tensors().reduction(Meet<Checks>(&meeting)).condition([&] {
    if (std::this_thread::get_id() == meeting.second.load()) meeting.come = true;
    return true;
  }));
  outputs.attach(model, torchtap::selectors::names("0"));
  const auto good = torch::ones({3}), bad = torch::ones({4});
  meeting.second = std::this_thread::get_id();
  std::int64_t expected = 0;
  for (int tries = 0; tries < 1000 && meeting.fresh == 0; ++tries) {  // until the record was locked
    meeting.inside = meeting.come = false;
    std::thread other([&] {
      meeting.first = std::this_thread::get_id();
      model->forward<Two>(good, good);
    });
    while (!meeting.inside) std::this_thread::yield();
    model->forward<Two>(good, good);
    other.join();
    meeting.first = std::thread::id();
    expected += 2;
  }
  BOOST_REQUIRE(meeting.fresh == 2);  // this thread has a sink for each slot now
  model->forward<Two>(good, good);
  BOOST_CHECK_THROW(model->forward<Two>(good, bad), c10::Error);
  BOOST_CHECK_THROW(model->forward<Two>(bad, good), c10::Error);
  model->forward<Two>(good, good);
  expected += 2;
  BOOST_TEST(meeting.fresh == 2);
  BOOST_TEST(outputs[0].samples() == expected);
  for (const std::int64_t slot : {0, 1}) {
    BOOST_TEST(outputs[0].slot(slot).tensor().equal(torch::full({3}, static_cast<float>(expected))));
  }
}

template <class Reduction>
void check_all_or_none(const Reduction& reduction, const std::string& result) {
  torch::nn::Sequential model{Pair()};
  ForwardOutput outputs(RecorderOptions().all_tensors().reduction(reduction));
  outputs.modules(*model, torchtap::selectors::names("0"));
  const auto good = torch::ones({3}), bad = torch::ones({4});
  // The first event is undone completely when its second slot is refused.
  const auto refused = [&](const at::Tensor& a, const at::Tensor& b) {
    const auto before = outputs[0].left_out();
    try {
      model->forward<Two>(a, b);
    } catch (const c10::Error&) {  // of a reduction that does not say that the sample is at fault
      return true;
    }
    return outputs[0].left_out() == before + 1;
  };
  BOOST_TEST(refused(good, torch::ones({3}).to_sparse()));
  BOOST_TEST(outputs[0].samples() == 0);
  BOOST_TEST(outputs[0].slots() == 0);
  model->forward<Two>(good, good);
  model->forward<Two>(good, good);
  const auto value = [&](std::int64_t slot) {
    const auto found = outputs[0].slot(slot);
    return found.is_tensor() ? found.tensor() : found.at(result).tensor();
  };
  const auto first = value(0).clone(), second = value(1).clone();
  BOOST_TEST(refused(good, bad));
  BOOST_TEST(refused(bad, good));
  BOOST_TEST(outputs[0].samples() == 2);
  BOOST_TEST(value(0).equal(first));
  BOOST_TEST(value(1).equal(second));
  model->forward<Two>(good, good);
  BOOST_TEST(outputs[0].samples() == 3);
  BOOST_TEST(value(0).equal(value(1)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_event_with_a_refused_tensor_changes_no_slot) {
  check_all_or_none(Sum{}, "");
  check_all_or_none(Series(Moments{}, Max{}), "moments.mean");
  check_all_or_none(Picky{}, "");
}

BOOST_AUTO_TEST_CASE(thread_sinks_fold_all_or_none) {
  check_threads_all_or_none<true>();
  check_threads_all_or_none<false>();
}

/// A forward that began before a reset leaves samples of some modules only.
bool lacks_samples(const ForwardOutput& recorder) {
  return std::any_of(recorder.begin(), recorder.end(), [](const auto& one) { return one.samples() == 0; });
}

// A read while the model runs is of one moment: a sum of ones equals the number of samples.
BOOST_AUTO_TEST_CASE(reading_while_the_model_runs) {
  constexpr int kThreads = 4;
  torch::nn::Sequential model{torch::nn::Identity(), torch::nn::Identity()};
  ForwardOutput sums(Sum{}), kept;
  sums.attach(model);
  kept.attach(model);
  const ForwardOutput& read = sums;
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> forwards{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (!stop || forwards < 200) {
        model->forward(torch::ones({1}));
        ++forwards;
      }
    });
  }
  while (forwards < 20) std::this_thread::yield();
  const TemporaryDirectory directory;
  for (int i = 0; i < 30; ++i) {
    for (const auto& entry : read.entries()) {
      BOOST_TEST(entry.samples > 0);
      BOOST_TEST(entry.value.tensor().item<double>() == static_cast<double>(entry.samples));
    }
    for (const auto& entry : kept.entries()) {
      BOOST_TEST(static_cast<std::int64_t>(entry.value.list().size()) == entry.samples);
    }
    ForwardOutput merged(Sum{}), restored(Sum{});
    merged.attach(model).detach();
    restored.attach(model).detach();
    merged.merge(read);
    std::stringstream stream;
    read.snapshot(stream);
    restored.restore(stream);
    for (const ForwardOutput* other : {&merged, &restored}) {
      for (const auto& entry : other->entries()) {  // a call that began before the detach may still record
        BOOST_TEST(entry.value.tensor().item<double>() == static_cast<double>(entry.samples));
      }
    }
    const double before = read.at("0").tensor().item<double>();
    BOOST_TEST(before <= static_cast<double>(read.at("0").samples()));
    if (i % 3 == 0) kept.reset();
    if (i % 10 == 9) sums.reset();
    while (lacks_samples(sums) || lacks_samples(kept)) std::this_thread::yield();
  }
  sums.save(directory / "sums", torchtap::storage::SaveOptions().mkdir(true));
  stop = true;
  for (auto& thread : threads) thread.join();
  for (const auto& entry : torchtap::storage::load(directory / "sums")) {
    BOOST_TEST(entry.tensor().item<double>() == static_cast<double>(entry.samples()));
  }
  for (const auto& subrecorder : read) {
    BOOST_TEST(subrecorder.tensor().item<double>() == static_cast<double>(subrecorder.samples()));
  }
}

BOOST_AUTO_TEST_CASE(threads_fold_all_or_none) {
  torch::nn::Sequential model{Pair()};
  ForwardOutput outputs(RecorderOptions().all_tensors().reduction(Sum{}));
  outputs.modules(*model, torchtap::selectors::names("0"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        model->forward<Two>(torch::ones({3}), torch::ones({(i + t) % 3 == 0 && i > 0 ? 4 : 3}));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const std::int64_t refused = outputs[0].left_out();
  BOOST_TEST(refused > 0);
  BOOST_TEST(outputs[0].samples() == 800 - refused);
  const auto expected = torch::full({3}, static_cast<double>(800 - refused));
  BOOST_TEST(outputs[0].slot(0).tensor().equal(expected.to(outputs[0].slot(0).tensor().scalar_type())));
  BOOST_TEST(outputs[0].slot(1).tensor().equal(outputs[0].slot(0).tensor()));
}

BOOST_AUTO_TEST_SUITE_END()
