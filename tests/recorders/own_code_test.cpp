// Code of the program that a recorder runs and that comes back to it: it is answered, or refused, and never
// waits.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(own_code, *boost::unit_test::timeout(120))  // instead of waiting for ever

using namespace torchtap::recorders;
namespace reductions = torchtap::reductions;
using torchtap::core::Results;
using torchtap_test::error_of;
using torchtap_test::says;

namespace {

at::Tensor ones(double number = 1) {
  return at::full({2}, number);
}

/// A model of one entry with a recorder of its inputs.
struct Recorded {
  torch::nn::Sequential model{torch::nn::Identity()};
  std::unique_ptr<ForwardPre> recorder;

  explicit Recorded(RecorderOptions options) : recorder(std::make_unique<ForwardPre>(std::move(options))) {
    recorder->attach(model, "0");
  }
  Subrecorder& at() const { return (*recorder)[0]; }
  void forward(double number = 1) { model->forward(ones(number)); }
};

/// What code of the program asks of its own recorder.
struct Question {
  const char* name;
  std::function<void(Recorded&)> ask;
};
const std::vector<Question>& questions() {
  static const std::vector<Question> all{
      {"value", [](Recorded& r) { r.at().value(); }},
      {"slot", [](Recorded& r) { r.at().slot(0); }},
      {"entries", [](Recorded& r) { r.recorder->entries(); }},
      {"take", [](Recorded& r) { static_cast<void>(r.at().take()); }},
      {"reset", [](Recorded& r) { r.recorder->reset(); }},
      {"set", [](Recorded& r) { r.at().set(ones()); }},
      {"merge", [](Recorded& r) { r.recorder->merge(*r.recorder); }},
  };
  return all;
}

/// A reduction of the program's that calls `during` while it folds, and `giving` while it gives its results.
struct Own {
  std::function<void()>* during = nullptr;
  std::function<void()>* giving = nullptr;
  bool any_order = false;
  double sum = 0;
  std::int64_t folded = 0;

  void update(const at::Tensor& sample) {
    if (during != nullptr && *during) (*during)();
    sum += sample.sum().item<double>();
    ++folded;
  }
  void merge(const Own& other) {
    sum += other.sum;
    folded += other.folded;
  }
  std::int64_t count() const { return folded; }
  Results results() const {
    if (giving != nullptr && *giving) (*giving)();
    return Results{{"value", at::full({}, sum)}};
  }
  Own fresh() const { return {during, giving, any_order}; }
  bool commutative() const { return any_order; }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_transform_may_ask_for_what_was_recorded) {
  for (const bool reduced : {false, true}) {
    for (const Question& question : questions()) {
      if (std::string(question.name) == "set" && !reduced) continue;  // kept samples are set by a list
      std::function<void()> ask;
      RecorderOptions options;
      if (reduced) options.reduction(reductions::Sum());
      options.transform([&](const at::Tensor& x) {
        if (ask) ask();
        return x * 2;
      });
      Recorded recorded(options);
      recorded.forward();
      ask = [&] { question.ask(recorded); };
      BOOST_TEST_CONTEXT(question.name) {
        BOOST_CHECK_NO_THROW(recorded.forward());
      }
      ask = nullptr;
      BOOST_TEST(recorded.at().samples() >= 1);
    }
  }
}

// As the differences to the first sample, which needs that sample.
BOOST_AUTO_TEST_CASE(a_transform_sees_the_samples_before_it) {
  Recorded* self = nullptr;
  Recorded recorded(RecorderOptions().transform(
      [&](const at::Tensor& x) { return self->at().samples() == 0 ? x : x - self->at().tensors().front(); }));
  self = &recorded;
  for (const double number : {3., 5., 4.}) recorded.forward(number);
  const auto samples = recorded.at().tensors();
  BOOST_REQUIRE(samples.size() == 3);
  BOOST_TEST((samples[0].equal(ones(3)) && samples[1].equal(ones(2)) && samples[2].equal(ones(1))));
}

BOOST_AUTO_TEST_CASE(a_transform_with_all_tensors_companions_or_a_stream_of_threads_is_called_in_turn) {
  std::atomic<int> inside{0}, most{0};
  Recorded* self = nullptr;
  const auto transform = [&](const at::Tensor& x) {
    most = std::max(most.load(), ++inside);
    static_cast<void>(self->at().slots());
    std::this_thread::yield();
    --inside;
    return x;
  };
  const RecorderOptions plain = RecorderOptions().transform(transform);
  for (const RecorderOptions& options : {RecorderOptions(plain), RecorderOptions(plain).all_tensors(),
                                         RecorderOptions(plain).reduction(reductions::Last()),
                                         RecorderOptions(plain).reduction(reductions::Sum())}) {
    Recorded recorded(options);
    self = &recorded;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const at::NoGradGuard no_grad;
        for (int k = 0; k < 50; ++k) recorded.forward();
      });
    }
    for (auto& thread : threads) thread.join();
    BOOST_TEST(recorded.at().samples() == 200);
    BOOST_TEST(most.load() == 1);
  }
}

BOOST_AUTO_TEST_CASE(a_transform_that_runs_its_own_module_is_refused) {
  for (const bool reduced : {false, true}) {
    torch::nn::Sequential model{torch::nn::Identity(), torch::nn::Identity()};
    int runs = 0;
    RecorderOptions options;
    if (reduced) options.reduction(reductions::Sum());
    ForwardPre recorder(options.transform([&](const at::Tensor& x) {
      if (++runs == 2) model->forward(x);
      return x;
    }));
    recorder.attach(model, "0");
    model->forward(ones());
    BOOST_CHECK_EXCEPTION(model->forward(ones()), c10::Error,
                          says({"ForwardPre \"0\" (Identity)", "its transform runs the module"}));
    model->forward(ones());
    BOOST_TEST(recorder[0].samples() == 2);
  }
}

BOOST_AUTO_TEST_CASE(a_reduction_of_the_programs_that_asks_for_itself_is_refused) {
  for (const bool any_order : {false, true}) {
    for (const Question& question : questions()) {
      std::function<void()> ask;
      Recorded recorded(RecorderOptions().reduction(Own{&ask, nullptr, any_order}));
      recorded.forward(2);
      ask = [&] { question.ask(recorded); };
      BOOST_TEST_CONTEXT(question.name) {
        BOOST_CHECK_EXCEPTION(
            recorded.forward(5), c10::Error,
            says({"ForwardPre \"0\" (Identity)", "its reduction, ", "asks for its own recorder"}));
      }
      ask = nullptr;
      recorded.forward(3);
      BOOST_TEST(recorded.at().samples() == 2);
      BOOST_TEST(recorded.at().tensor().item<double>() == 10);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_callable_that_asks_for_itself_or_runs_its_module_is_refused) {
  for (const bool runs : {false, true}) {
    bool asks = false;
    Recorded* self = nullptr;
    Recorded recorded(RecorderOptions().reduction([&](const at::Tensor& sum, const at::Tensor& x) {
      if (asks && runs) self->forward();
      if (asks && !runs) return self->at().tensor() + x;
      return sum + x;
    }));
    self = &recorded;
    recorded.forward();
    asks = true;
    BOOST_CHECK_EXCEPTION(recorded.forward(), c10::Error,
                          says({"its reduction, callable, asks for its own recorder, or runs the module"}));
    asks = false;
    recorded.forward(4);
    BOOST_TEST(recorded.at().tensor().equal(ones(5)));
  }
}

// Samples are counted without asking for the reduction.
BOOST_AUTO_TEST_CASE(a_reduction_of_the_programs_may_ask_how_many_samples_there_were) {
  std::int64_t seen = -1;
  std::function<void()> ask;
  Recorded recorded(RecorderOptions().reduction(Own{&ask, nullptr, true}));
  ask = [&] {
    seen = recorded.at().samples() + recorded.recorder->samples() + recorded.at().events() +
           recorded.at().slots();
  };
  recorded.forward();
  recorded.forward();
  BOOST_TEST(seen == 4);
}

// Also while several threads fold side by side, and where results are computed under the lock.
BOOST_AUTO_TEST_CASE(a_reduction_is_refused_in_each_thread_and_in_its_results) {
  std::function<void()> none, ask, giving;
  Recorded recorded(RecorderOptions().reduction(Own{&ask, &giving, true}));
  std::atomic<int> refused{0};
  ask = [&] {
    try {
      recorded.at().value();
    } catch (const c10::Error&) {
      ++refused;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      for (int k = 0; k < 50; ++k) recorded.forward();
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(refused.load() == 200);
  BOOST_TEST(recorded.at().samples() == 200);
  BOOST_TEST(recorded.at().tensor().item<double>() == 400);
  giving = [&] { recorded.at().value(); };
  BOOST_CHECK_EXCEPTION(recorded.at().take(), c10::Error, says({"asks for its own recorder"}));
  giving = nullptr;
  BOOST_TEST(recorded.at().samples() == 200);
}

// Two recorders may ask for each other.
BOOST_AUTO_TEST_CASE(a_reduction_may_ask_for_another_recorder) {
  torch::nn::Sequential model{torch::nn::Identity(), torch::nn::Identity()};
  ForwardPre first(reductions::Sum{});
  first.attach(model, "0");
  ForwardPre second(
      RecorderOptions().reduction([&](const at::Tensor&, const at::Tensor&) { return first[0].tensor(); }));
  second.attach(model, "1");
  for (int i = 0; i < 3; ++i) model->forward(ones());
  BOOST_TEST(second[0].tensor().equal(ones(3)));
}

// In each of these a recorder may be detached and destroyed, and another one attached.
BOOST_AUTO_TEST_CASE(a_recorder_may_end_in_what_it_calls) {
  enum class In { condition, transform, reduction, on_error };
  for (const In in : {In::condition, In::transform, In::reduction, In::on_error}) {
    for (const bool destroyed : {false, true}) {
      torch::nn::Sequential model{torch::nn::Identity(), torch::nn::Identity()};
      std::unique_ptr<ForwardPre> recorder;
      ForwardPre next;
      int calls = 0;
      const auto end = [&] {
        if (++calls > 1) return;
        next.attach(model, "0");
        recorder->detach();
        if (destroyed) recorder.reset();
      };
      RecorderOptions options;
      if (in == In::condition) {
        options.condition([&](const Sample&) { return end(), true; });
      } else if (in == In::transform) {
        options.transform([&](const at::Tensor& x) { return end(), x; });
      } else if (in == In::reduction) {
        options.reduction([&](const at::Tensor& sum, const at::Tensor& x) { return end(), sum + x; });
      } else {
        options.transform([](const at::Tensor&) { return at::Tensor(); });
        options.on_error([&](const std::string&, const std::exception_ptr&) { end(); });
      }
      recorder = std::make_unique<ForwardPre>(options);
      recorder->attach(model, "0");
      BOOST_TEST_CONTEXT(static_cast<int>(in) << (destroyed ? " destroyed" : " detached")) {
        for (int i = 0; i < 3; ++i) BOOST_CHECK_NO_THROW(model->forward(ones()));
        BOOST_TEST(calls == 1);
        BOOST_TEST((recorder == nullptr) == destroyed);
        BOOST_TEST(next[0].samples() >= 1);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_condition_on_error_apply_and_maps_of_companions_may_ask) {
  for (const Question& question : questions()) {
    if (std::string(question.name) == "set") continue;
    std::function<void()> ask;
    bool fails = false;
    Recorded recorded(RecorderOptions()
                          .condition([&](const Sample&) {
                            if (ask && !fails) ask();
                            return true;
                          })
                          .transform([&](const at::Tensor& x) { return fails ? at::Tensor() : x; })
                          .on_error([&](const std::string&, const std::exception_ptr&) {
                            if (ask) ask();
                          }));
    recorded.forward();
    ask = [&] { question.ask(recorded); };
    for (const bool error : {false, true}) {
      fails = error;
      BOOST_TEST_CONTEXT(question.name) {
        BOOST_CHECK_NO_THROW(recorded.forward());
      }
    }
    fails = false;
    ask = nullptr;
    recorded.forward();
    recorded.at().apply([&](const at::Tensor& x) {
      static_cast<void>(recorded.at().value());
      return x * 2;
    });
    BOOST_TEST(recorded.at().tensors().front().equal(ones(2)));
  }
}

// A tensor may run code of the program's when its memory is given back.
BOOST_AUTO_TEST_CASE(memory_is_given_back_outside_of_the_lock) {
  Recorded* self = nullptr;
  bool asked = false;
  float numbers[2] = {1, 2};
  Recorded recorded(RecorderOptions().capture(Capture::alias));
  self = &recorded;
  recorded.model->forward(at::from_blob(
      numbers, {2}, [&](void*) { asked = self->at().value().is_none(); }, at::kFloat));
  recorded.recorder->reset();
  BOOST_TEST(asked);
}

BOOST_AUTO_TEST_SUITE_END()
