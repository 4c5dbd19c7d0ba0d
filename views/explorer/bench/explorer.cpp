// What an explorer adds to training a ResNet-18 on 16 images of 64×64, in one thread; everything in turns
// with the same without. Prints rows of views/explorer/README.md.
//
// usage: bench_explorer ROUNDS [steps | default | viewers views/explorer/bench/viewers.py COUNT]
#include <ATen/Parallel.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include <torchtap/views/explorer/explorer.hpp>

#include "zoo/resnet.hpp"

namespace {

namespace explorer = torchtap::views::explorer;

double now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
  return of[of.size() / 2];
}

double mean(const std::vector<double>& of) {
  return std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size());
}

/// A network in training, and how long its steps took.
struct Training {
  void step() {
    optimizer.zero_grad();
    net(images).pow(2).mean().backward();
    optimizer.step();
  }
  /// By default CPU time of this thread, which other processes of the machine hardly disturb.
  void measure(std::vector<double>& ms, clockid_t clock = CLOCK_THREAD_CPUTIME_ID) {
    const double begin = now(clock);
    step();
    ms.push_back(now(clock) - begin);
  }

  explicit Training(std::int64_t width = 64, std::int64_t batch = 16)
      : net(zoo::ResNet18Options().width(width)), images(torch::randn({batch, 3, 64, 64})) {}

  zoo::ResNet18 net;
  torch::optim::SGD optimizer{net->parameters(), 1e-3};
  at::Tensor images;
};

void print_row(const std::string& text, double with, double without) {
  std::printf("| %s | %.1f ms | %.1f ms | %.3f × |\n", text.c_str(), with, without, with / without);
  std::fflush(stdout);
}

/// Steps of one network without an explorer and with each of several, in turns.
void compare_steps(int rounds) {
  using explorer::ExplorerOptions;
  struct Kind {
    const char* text;
    ExplorerOptions options;
    std::int64_t first_step;  // 0 is always recorded
    std::vector<double> ms{};
  };
  Kind kinds[]{{"a step that is not recorded", ExplorerOptions().every(1'000'000'000), 1},
               {"a step that is recorded", ExplorerOptions().every(1), 0},
               {"the same, only inputs and outputs",
                ExplorerOptions().every(1).record(explorer::Input | explorer::Output), 0}};
  Training training;
  for (int i = 0; i < 2; ++i) training.step();
  std::vector<double> plain;
  for (int round = 0; round < rounds; ++round) {
    training.measure(plain);
    for (Kind& kind : kinds) {
      explorer::Explorer watched(kind.options);
      watched.attach(*training.net);
      if (kind.first_step > 0) watched.step(kind.first_step);
      training.step();  // makes the graph
      training.measure(kind.ms);
    }
  }
  for (Kind& kind : kinds) print_row(kind.text, median(kind.ms), median(plain));
}

/// The same for steps that are not recorded, with as many modules, which compute so little that what hooks
/// take can be seen.
void compare_hooks(int rounds) {
  Training training(2, 1);
  std::vector<double> with, without;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 30; ++i) training.measure(without);
    explorer::Explorer watched(explorer::ExplorerOptions().every(1'000'000'000));
    watched.attach(*training.net);
    watched.step(1);
    training.step();  // makes the graph
    for (int i = 0; i < 30; ++i) training.measure(with);
  }
  const double added = median(with) - median(without);
  print_row("a step that is not recorded, of a network 2 channels wide", median(with), median(without));
  std::printf("adds %.0f µs to a step\n", added * 1e3);
}

/// Two networks in turns, one of them with an explorer. As it is trained half of the time only, half of the
/// default share of all time is that share of its own.
void compare_default(int rounds) {
  Training plain, other;
  explorer::Explorer watched(
      explorer::ExplorerOptions().overhead(explorer::ExplorerOptions().overhead() / 2));
  watched.attach(*other.net);
  std::vector<double> with, without;
  for (int round = 0; round < rounds; ++round) {
    plain.measure(without);
    other.measure(with);
  }
  print_row("a step by default, on average of all from the first", mean(with), mean(without));
}

/// The first forward, of which the graph is made, beside one that is not looked at.
void compare_graphs(int rounds) {
  Training training;
  std::vector<double> looked, bare;
  const torch::NoGradGuard no_grad;
  training.net->eval();
  const auto forward = [&](std::vector<double>& ms) {
    const double begin = now(CLOCK_THREAD_CPUTIME_ID);
    training.net(training.images);
    ms.push_back(now(CLOCK_THREAD_CPUTIME_ID) - begin);
  };
  for (int round = 0; round < rounds; ++round) {
    forward(bare);
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).record(0));
    watched.attach(*training.net);
    forward(looked);
  }
  print_row("a forward of which the graph is made", median(looked), median(bare));
}

/// `attach` while nobody watches.
void compare_attach() {
  constexpr int calls = 100'000'000;
  const at::Tensor x = torch::randn({1});
  std::vector<double> with, without;
  for (int round = 0; round < 5; ++round) {
    double begin = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < calls; ++i) asm volatile("" : : "r"(&x) : "memory");
    without.push_back(now(CLOCK_THREAD_CPUTIME_ID) - begin);
    begin = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < calls; ++i) asm volatile("" : : "r"(&explorer::attach(x, "x")) : "memory");
    with.push_back(now(CLOCK_THREAD_CPUTIME_ID) - begin);
  }
  std::printf("`attach` while nobody watches: %.2f ns\n", (median(with) - median(without)) * 1e6 / calls);
}

/// Starts a script that looks at the page.
pid_t start(const char* script, const std::string& url, const char* count) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::execlp("python3", "python3", script, url.c_str(), count, nullptr);
  ::_exit(1);
}

/// With viewers and, as they and the server need processors too, with as many busy processes beside the
/// training.
void compare_viewers(int rounds, const char* script, const char* count) {
  Training training(64, 4);
  explorer::Explorer watched(explorer::ExplorerOptions().every(5));
  watched.attach(*training.net);
  const std::string url = watched.serve();
  std::vector<double> alone, looked, busy;
  const auto run = [&](std::vector<double>& medians) {
    std::vector<double> ms;
    for (int step = 0; step < 15; ++step) training.measure(ms, CLOCK_MONOTONIC);
    medians.push_back(median(ms));
  };
  const auto run_beside = [&](pid_t child, std::vector<double>& medians) {
    ::sleep(1);  // until all are there
    run(medians);
    ::kill(child, SIGTERM);
    ::waitpid(child, nullptr, 0);
  };
  for (int round = 0; round < rounds; ++round) {
    run(alone);
    run_beside(start(script, url, count), looked);
    run_beside(start(script, "", "0"), busy);
    print_row("a step with " + std::string(count) + " viewers", median(looked), median(alone));
    print_row("a step beside a busy process", median(busy), median(alone));
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string part = count < 3 ? "" : arguments[2];
  if (count < 2 || (part == "viewers") != (count == 5)) {
    std::fputs(
        "usage: bench_explorer ROUNDS [steps | default | viewers views/explorer/bench/viewers.py COUNT]\n",
        stderr);
    return 2;
  }
  at::set_num_threads(1);
  const int rounds = std::max(1, std::atoi(arguments[1]));
  if (part == "viewers") compare_viewers(rounds, arguments[3], arguments[4]);
  if (part.empty() || part == "default") compare_default(rounds);
  if (part.empty() || part == "steps") {
    compare_steps(rounds);
    compare_hooks(rounds);
    compare_graphs(rounds);
    compare_attach();
  }
}
