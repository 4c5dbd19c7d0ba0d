// Times on a clock that the modules of the tests advance by themselves, so that each number is exact.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <random>
#include <thread>

#include <torchtap/hooks/hooked.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/views/report/detail/tree.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(times)

namespace {

using namespace support;
using report::Report;

/// Lets time pass before and after it calls others.
struct StepImpl : nn::Module {
  FakeClock clock;
  std::int64_t before, after;
  std::vector<std::shared_ptr<StepImpl>> inside;

  StepImpl(FakeClock given, std::int64_t b, std::int64_t a) : clock(std::move(given)), before(b), after(a) {}
  std::shared_ptr<StepImpl> add(const std::string& name, std::shared_ptr<StepImpl> child) {
    inside.push_back(register_module(name, std::move(child)));
    return inside.back();
  }
  virtual at::Tensor body(at::Tensor x);
  at::Tensor forward(at::Tensor x) {
    clock.pass(before);
    x = body(x);
    clock.pass(after);
    return x;
  }
};

/// Calls a module, with its hooks.
at::Tensor call(StepImpl& module, const at::Tensor& x);

at::Tensor StepImpl::body(at::Tensor x) {
  for (const auto& child : inside) x = call(*child, x);
  return x;
}

using HookedStep = torchtap::hooks::Hooked<StepImpl>;

at::Tensor call(StepImpl& module, const at::Tensor& x) {
  return static_cast<HookedStep&>(module).forward(x);
}

std::shared_ptr<StepImpl> step(const FakeClock& clock, std::int64_t before, std::int64_t after) {
  return std::make_shared<HookedStep>(clock, before, after);
}

void check_time(const report::Measurements& results, const std::string& path, std::int64_t inclusive,
                std::int64_t self, std::int64_t calls = 1) {
  const auto& forward = row(results, path).forward;
  BOOST_TEST(nanoseconds(forward.inclusive.median) == inclusive, path);
  BOOST_TEST(nanoseconds(forward.self.median) == self, path);
  BOOST_TEST(forward.inclusive.calls == calls, path);
  BOOST_TEST(forward.self.calls == calls, path);
}

const at::Tensor input = torch::ones({2});

BOOST_AUTO_TEST_CASE(modules_three_deep) {
  const FakeClock clock;
  const auto root = step(clock, 5, 7);
  const auto middle = root->add("middle", step(clock, 100, 200));
  root->add("last", step(clock, 11, 0));
  middle->add("leaf", step(clock, 1000, 3000));
  Report report(*root, clock.options());
  {
    auto recording = report.record();
    call(*root, input);
    clock.pass(1000000);  // outside
    recording.phase(report::Phase::other);
    clock.pass(20000000);
  }
  const auto results = report.results();
  check_time(results, "", 12 + 300 + 4000 + 11, 12);
  check_time(results, "middle", 4300, 300);
  check_time(results, "middle.leaf", 4000, 4000);
  check_time(results, "last", 11, 11);
  BOOST_TEST(results.repeats == 1);
  BOOST_TEST(nanoseconds(results.seconds) == 12 + 300 + 4000 + 11 + 1000000);
  BOOST_TEST(nanoseconds(row(results, "middle").forward.inclusive.first) == 4300);
}

BOOST_AUTO_TEST_CASE(a_cost_of_calls_that_is_given_is_taken_out) {
  const FakeClock clock;
  const auto root = step(clock, 50, 70);
  root->add("first", step(clock, 100, 0));
  root->add("last", step(clock, 11, 0));
  Report report(*root, clock.options().call_cost(report::CallCost{3, 20}));
  {
    auto recording = report.record();
    call(*root, input);
  }
  const auto results = report.results();
  check_time(results, "first", 97, 97);
  check_time(results, "last", 8, 8);
  check_time(results, "", 120 + 111 - 2 * (3 + 20) - 3, 120 - 2 * 20 - 3);
}

BOOST_AUTO_TEST_CASE(one_recording_for_a_loop) {
  const FakeClock clock;
  const auto root = step(clock, 5, 7);
  root->add("last", step(clock, 11, 0));
  Report report(torchtap::model::walk_modules(*root), clock.options());
  auto recording = report.record();
  call(*root, input);
  BOOST_CHECK_EXCEPTION(report.results(), c10::ValueError, torchtap_test::says({"results", "end it"}));
  recording.next();
  call(*root, input);
  call(*root, input);
  std::thread([&] { recording.end(); }).join();
  call(*root, input);  // between repeats
  BOOST_CHECK_EXCEPTION(recording.phase(report::Phase::backward), c10::ValueError,
                        torchtap_test::says({"phase", "next"}));
  BOOST_CHECK_EXCEPTION(static_cast<void>(report.record()), c10::ValueError,
                        torchtap_test::says({"record", "open"}));
  const auto results = report.results();
  BOOST_TEST(results.repeats == 2);
  BOOST_TEST(results.root.forward.inclusive.calls == 3);
  BOOST_TEST(nanoseconds(results.root.forward.inclusive.min) == 23);
  BOOST_TEST(nanoseconds(results.root.forward.inclusive.total) == 3 * 23);
  recording.next();
  call(*root, input);
  recording.stop();
  BOOST_TEST(report.results().repeats == 3);
  BOOST_CHECK_EXCEPTION(recording.next(), c10::ValueError, torchtap_test::says({"next", "record()"}));
  BOOST_CHECK_EXCEPTION(Report(std::vector<torchtap::model::ModuleRef>()), c10::ValueError,
                        torchtap_test::says({"walk_modules"}));
}

BOOST_AUTO_TEST_CASE(torchtaps_own_time_is_nobodys) {
  const FakeClock clock;
  const auto root = step(clock, 0, 0);
  root->add("a", step(clock, 50, 0))->add("b", step(clock, 7, 0));
  // Each look at the clock takes one: what lies between torchtap's two looks is torchtap's.
  Report report(*root, report::ReportOptions().clock([clock] {
    clock.pass(1);
    return *clock.now;
  }));
  {
    const auto recording = report.record();
    call(*root, input);
  }
  const auto results = report.results();
  // One look remains in each stretch between two hooks.
  check_time(results, "a.b", 7 + 1, 7 + 1);
  check_time(results, "a", 50 + 8 + 2, 50 + 2);
  BOOST_TEST(nanoseconds(results.own_seconds) == 6);
}

BOOST_AUTO_TEST_CASE(a_module_called_twice_and_one_at_two_paths) {
  const FakeClock clock;
  const auto root = step(clock, 1, 0), twice = step(clock, 20, 0);
  root->add("a", twice);
  root->add("b", twice);
  Report report(*root, clock.options());
  {
    const auto recording = report.record();
    call(*root, input);
  }
  const auto results = report.results();
  check_time(results, "", 41, 1);
  check_time(results, "a", 40, 40, 2);
  BOOST_TEST(nanoseconds(row(results, "a").forward.inclusive.first) == 20);
  BOOST_TEST(row(results, "a").aliases == (std::vector<std::string>{"b"}), boost::test_tools::per_element());
  BOOST_TEST(results.root.children.size() == 1U);
}

/// Two branches of one input that meet again.
struct DiamondImpl : StepImpl {
  using StepImpl::StepImpl;
  at::Tensor body(at::Tensor x) override { return call(*inside[0], x) + call(*inside[1], x); }
};

BOOST_AUTO_TEST_CASE(branches_that_meet) {
  const FakeClock clock;
  const auto root = step(clock, 3, 4);
  const auto diamond =
      root->add("diamond", std::make_shared<torchtap::hooks::Hooked<DiamondImpl>>(clock, 10, 20));
  diamond->add("left", step(clock, 100, 0));
  diamond->add("right", step(clock, 300, 0));
  Report report(*root, clock.options());
  {
    const auto recording = report.record();
    // Hooked<DiamondImpl> is no Hooked<StepImpl>.
    static_cast<torchtap::hooks::Hooked<DiamondImpl>&>(*diamond).forward(input);
  }
  const auto results = report.results();
  check_time(results, "diamond", 430, 30);
  check_time(results, "diamond.left", 100, 100);
  check_time(results, "diamond.right", 300, 300);
  // The root was passed by: what is inside ran, and is its sum.
  BOOST_TEST(results.root.forward.inclusive.calls == 0);
  BOOST_TEST(results.root.summed);
  BOOST_TEST(nanoseconds(results.root.forward.inclusive.median) == 430);
  BOOST_TEST(results.root.marks.empty());
  BOOST_TEST(!row(results, "diamond").summed);
  BOOST_TEST(row(results, "diamond.left").marks.empty());
}

/// A list has no forward, and the model runs its entries itself.
struct ListedImpl : StepImpl {
  nn::ModuleList list{register_module("list", nn::ModuleList())};
  using StepImpl::StepImpl;
  at::Tensor body(at::Tensor x) override {
    for (const auto& entry : inside) x = call(*entry, x);
    return x;
  }
};

BOOST_AUTO_TEST_CASE(a_list_is_the_sum_of_its_entries) {
  const FakeClock clock;
  torchtap::hooks::Hooked<ListedImpl> root(clock, 1, 2);
  for (const std::int64_t time : {10, 100}) {
    auto entry = step(clock, time, 0);
    root.inside.push_back(entry);
    root.list->push_back(entry);
  }
  root.list->push_back(step(clock, 1000, 0));  // never called
  Report report(root, clock.options());
  for (int i = 0; i < 3; ++i) {
    const auto recording = report.record();
    root.forward(input);
  }
  const auto results = report.results();
  const auto& list = row(results, "list");
  BOOST_TEST(!list.has_forward);
  BOOST_TEST(list.summed);
  BOOST_TEST(list.forward.inclusive.calls == 0);
  BOOST_TEST(nanoseconds(list.forward.inclusive.median) == 110);
  BOOST_TEST(nanoseconds(list.forward.inclusive.total) == 330);
  BOOST_TEST(list.forward.work.operations ==
             row(results, "list.0").forward.work.operations + row(results, "list.1").forward.work.operations);
  check_time(results, "", 113, 3, 3);
  const auto& marks = row(results, "list.2").marks;
  BOOST_TEST((std::find(marks.begin(), marks.end(), "never_ran") != marks.end()));
}

/// Calls itself until nothing is left.
struct RecursiveImpl : StepImpl {
  using StepImpl::StepImpl;
  int left = 3;
  at::Tensor body(at::Tensor x) override {
    if (left-- == 0) return x;
    return static_cast<torchtap::hooks::Hooked<RecursiveImpl>&>(*this).forward(x);
  }
};

BOOST_AUTO_TEST_CASE(recursion_counts_once) {
  const FakeClock clock;
  auto root = std::make_shared<torchtap::hooks::Hooked<RecursiveImpl>>(clock, 10, 1);
  Report report(*root, clock.options());
  {
    const auto recording = report.record();
    root->forward(input);
  }
  check_time(report.results(), "", 44, 44, 4);
}

/// Throws the first time.
struct ThrowingImpl : StepImpl {
  using StepImpl::StepImpl;
  bool threw = false;
  at::Tensor body(at::Tensor x) override {
    if (!std::exchange(threw, true)) throw std::runtime_error("half-way");
    return x.exp();
  }
};

BOOST_AUTO_TEST_CASE(an_exception_half_way) {
  const FakeClock clock;
  auto throwing = std::make_shared<torchtap::hooks::Hooked<ThrowingImpl>>(clock, 1000, 1);
  struct CallsThrowing : StepImpl {
    using StepImpl::StepImpl;
    torchtap::hooks::Hooked<ThrowingImpl>* thrower = nullptr;
    at::Tensor body(at::Tensor x) override { return thrower->forward(x); }
  };
  auto around = std::make_shared<torchtap::hooks::Hooked<CallsThrowing>>(clock, 2, 3);
  around->thrower = throwing.get();
  around->register_module("inner", throwing);
  Report report(*around, clock.options());
  {
    const auto recording = report.record();
    BOOST_CHECK_THROW(around->forward(input), std::runtime_error);
    clock.pass(50000);
    around->forward(input);  // is no recursion
  }
  {
    BOOST_CHECK_THROW(
        {
          const auto recording = report.record();
          throwing->threw = false;
          around->forward(input);
        },
        std::runtime_error);
  }
  {
    const auto recording = report.record();
    around->forward(input);
  }
  const auto results = report.results();
  BOOST_TEST(results.repeats == 3);
  BOOST_TEST(results.root.forward.inclusive.calls == 4);
  // The repeats: 1006 and what is known of the call that threw, 2 and 0; the latter; 1006.
  BOOST_TEST(nanoseconds(results.root.forward.inclusive.total) == 2 * 1006 + 2 * 2);
  BOOST_TEST(nanoseconds(results.root.forward.self.min) == 2);
  BOOST_TEST(nanoseconds(row(results, "inner").forward.inclusive.total) == 2 * 1001);
  bool said = false;
  for (const auto& note : results.notes)
    said = said || note.find("4 calls ended by an exception") != std::string::npos;
  BOOST_TEST(said);
}

BOOST_AUTO_TEST_CASE(one_exception_is_one_call) {
  const FakeClock clock;
  auto throwing = std::make_shared<torchtap::hooks::Hooked<ThrowingImpl>>(clock, 1000, 1);
  Report report(*throwing, clock.options());
  {
    const auto recording = report.record();
    BOOST_CHECK_THROW(throwing->forward(input), std::runtime_error);
  }
  const auto notes = report.results().notes;
  BOOST_TEST(std::count(notes.begin(), notes.end(),
                        "1 call ended by an exception; its time reaches to the last operation or module that "
                        "it ran.") == 1);
}

BOOST_AUTO_TEST_CASE(repeats_and_warm_up) {
  const FakeClock clock;
  const auto root = step(clock, 0, 0);
  Report report(*root, clock.options().warmup(2));
  for (const std::int64_t time : {900, 800, 10, 40, 20, 30, 100, 50, 60, 70, 80, 90}) {
    root->before = time;
    const auto recording = report.record();
    call(*root, input);
  }
  const auto results = report.results();
  const auto& times = results.root.forward.inclusive;
  BOOST_TEST(results.repeats == 10);
  BOOST_TEST(results.warmup == 2);
  BOOST_TEST(times.calls == 10);
  BOOST_TEST(nanoseconds(times.first) == 900);
  BOOST_TEST(nanoseconds(times.min) == 10);
  BOOST_TEST(nanoseconds(times.median) == 55);
  BOOST_TEST(nanoseconds(times.p90) == 90);
  BOOST_TEST(nanoseconds(times.total) == 550);
}

/// However long a program is measured, memory stays as it is; what needs no single times is exact even so.
BOOST_AUTO_TEST_CASE(many_repeats) {
  report::detail::TimeSums sums;
  std::minstd_rand random;
  constexpr std::int64_t kAll = 100'003;
  for (std::int64_t i = 0; i < kAll; ++i) {
    sums.now = i * 7919 % kAll;  // each time once, in another order
    sums.count(random);
  }
  BOOST_TEST(sums.repeats == kAll);
  BOOST_TEST(sums.least == 0);
  BOOST_TEST(sums.total == kAll * (kAll - 1) / 2);
  BOOST_TEST(sums.some.size() == sums.kMost);
  BOOST_TEST(sums.some.capacity() < 2 * sums.kMost);
  std::sort(sums.some.begin(), sums.some.end());
  // Of 1 000 chosen at random a quantile lies within six standard errors: .5 / sqrt(1 000) each.
  for (const double quantile : {.1, .5, .9}) {
    const auto place = static_cast<std::size_t>(quantile * 1'000);
    BOOST_TEST(std::abs(static_cast<double>(sums.some[place]) / kAll - quantile) < .095, quantile);
  }
  BOOST_TEST((std::adjacent_find(sums.some.begin(), sums.some.end()) == sums.some.end()));
}

BOOST_AUTO_TEST_CASE(a_model_that_is_made_anew) {
  const FakeClock clock;
  auto root = step(clock, 10, 0);
  root->add("inside", step(clock, 5, 0));
  Report report(*root, clock.options());
  const auto repeat = [&] {
    const auto recording = report.record();
    call(*root, input);
    BOOST_CHECK_EXCEPTION(report.let_go(), c10::ValueError, torchtap_test::says({"Report::let_go", "open"}));
  };
  repeat();
  report.let_go();
  const std::weak_ptr<StepImpl> gone = root;
  root.reset();
  BOOST_TEST(gone.expired());
  check_time(report.results(), "", 15, 10);
  BOOST_CHECK_EXCEPTION(static_cast<void>(report.record()), c10::ValueError, torchtap_test::says({"follow"}));
  BOOST_CHECK_EXCEPTION(report.follow(*step(clock, 10, 0)), c10::ValueError,
                        torchtap_test::says({"Report::follow"}));
  root = step(clock, 30, 0);
  root->add("inside", step(clock, 5, 0));
  report.follow(*root);
  repeat();
  repeat();
  const auto results = report.results();
  BOOST_TEST(results.repeats == 3);
  check_time(results, "", 35, 30, 3);
  BOOST_TEST(nanoseconds(row(results, "").forward.inclusive.min) == 15);
  BOOST_TEST(std::count(results.notes.begin(), results.notes.end(),
                        "Repeats of 2 models of the same modules, of which each was there after the one "
                        "before.") == 1);
}

/// A mutex that another thread held stays locked in the child.
BOOST_AUTO_TEST_CASE(a_child_that_is_forked_while_another_thread_is_measured) {
  const auto root = step(FakeClock(), 0, 0);
  std::atomic<bool> holds{false}, held{false};
  Report report(*root, report::ReportOptions().clock([&]() -> std::int64_t {
    while (holds) held = true;
    return 0;
  }));
  std::thread other([&] {
    const auto recording = report.record();
    holds = true;
    call(*root, input);
  });
  while (!held) std::this_thread::yield();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const bool same = call(*root, input).equal(input);
    ::_exit(same ? 0 : 1);
  }
  holds = false;
  other.join();
  int status = -1;
  BOOST_TEST(::waitpid(child, &status, 0) == child);
  BOOST_TEST(status == 0);
  BOOST_TEST(report.results().repeats == 1);
}

/// Sleeps on the machine's clock.
struct SleepImpl : nn::Module {
  int milliseconds;
  explicit SleepImpl(int given) : milliseconds(given) {}
  at::Tensor forward(at::Tensor x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return x;
  }
};
TORCHTAP_MODULE(Sleep);

struct TwoSleepsImpl : nn::Module {
  nn::Sequential both{Sleep(120), Sleep(60)};
  TwoSleepsImpl() { register_module("both", both); }
  at::Tensor forward(const at::Tensor& x) { return both->forward(x); }
};
TORCHTAP_MODULE(TwoSleeps);

BOOST_AUTO_TEST_CASE(on_the_machines_clock_modules_that_sleep) {
  nn::Sequential model;
  model->push_back("inner", TwoSleeps());
  model->push_back("last", Sleep(20));
  Report report(*model);
  double whole = std::numeric_limits<double>::infinity();  // the shortest repeat
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    const auto recording = report.record();
    model->forward(input);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    whole = std::min(whole, took.count());
  }
  const auto results = report.results();
  // A busy machine wakes us late, and never early: what the other modules slept is not in a module's time.
  const auto check = [&](const std::string& path, double inclusive) {
    const auto& forward = row(results, path).forward;
    BOOST_TEST(forward.inclusive.min >= inclusive, path);
    BOOST_TEST(forward.inclusive.min <= whole - (0.2 - inclusive), path);
  };
  check("", 0.2);
  check("inner", 0.18);
  check("inner.both", 0.18);
  check("inner.both.0", 0.12);
  check("inner.both.1", 0.06);
  check("last", 0.02);
  BOOST_TEST(results.root.forward.self.min <= whole - 0.2);
  BOOST_TEST(row(results, "inner.both").forward.self.min <= whole - 0.2);
}

BOOST_AUTO_TEST_CASE(calls_at_wrong_times_say_so) {
  const FakeClock clock;
  const auto root = step(clock, 0, 0);
  Report report(*root, clock.options());
  auto recording = report.record();
  BOOST_CHECK_EXCEPTION(static_cast<void>(report.record()), c10::ValueError,
                        torchtap_test::says({"record", "open"}));
  BOOST_CHECK_EXCEPTION(report.results(), c10::ValueError, torchtap_test::says({"results", "end it"}));
  auto moved = std::move(recording);
  BOOST_CHECK_EXCEPTION(recording.phase(report::Phase::backward), c10::ValueError,
                        torchtap_test::says({"phase"}));
  moved.stop();
  moved.stop();
  BOOST_TEST(report.results().repeats == 1);
  BOOST_CHECK_EXCEPTION(Report(*root, report::ReportOptions().warmup(-1)), c10::ValueError,
                        torchtap_test::says({"warm-up", "-1"}));
  BOOST_CHECK_EXCEPTION(report::ReportOptions().formula("mm", [](auto&&...) { return 1; }), c10::ValueError,
                        torchtap_test::says({"\"mm\"", "namespace"}));
  BOOST_CHECK_EXCEPTION(report::ReportOptions().formula("aten::mm", nullptr), c10::ValueError,
                        torchtap_test::says({"aten::mm", "empty"}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
