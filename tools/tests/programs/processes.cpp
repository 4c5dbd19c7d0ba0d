// A program that knows nothing of torchtap and works and ends in unusual ways: in other processes, by
// signals, with modules that live for one call only. The layer adds its two inputs, so that its outputs
// identify its inputs.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/script.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace nn = torch::nn;

namespace {

nn::Linear make_layer() {
  nn::Linear layer(2, 1);
  torch::NoGradGuard guard;
  layer->weight.fill_(1);
  layer->bias.fill_(0);
  return layer;
}

/// The output of `layer` is twice the value.
void feed(nn::Linear& layer, double value) {
  torch::NoGradGuard guard;
  layer(torch::full({1, 2}, value));
}

void wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
  }
  std::cout << "child: " << (WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)) << std::endl;
}

pid_t in_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  return child;
}

void sleep_on() {
  for (;;) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

volatile sig_atomic_t calls = 0;

// ---- processes

int fork_after() {
  auto layer = make_layer();
  feed(layer, 1);
  const pid_t child = in_child([&] {
    for (const double value : {10., 20., 30.}) feed(layer, value);
  });
  wait_for(child);
  feed(layer, 2);
  return 5;
}

int fork_exit() {
  auto layer = make_layer();
  feed(layer, 1);
  wait_for(in_child([&] {
    feed(layer, 10);
    std::exit(6);
  }));
  return 5;
}

int fork_first() {
  wait_for(in_child([] {
    auto layer = make_layer();
    feed(layer, 10);
  }));
  return 5;
}

/// Two forks, as daemons do; the child in between does nothing.
int fork_twice() {
  auto layer = make_layer();
  feed(layer, 1);
  wait_for(in_child([&] { wait_for(in_child([&] { feed(layer, 10); })); }));
  return 5;
}

/// Children that only run another program or end.
int fork_idle() {
  auto layer = make_layer();
  feed(layer, 1);
  wait_for(in_child([] { ::execlp("true", "true", nullptr); }));
  wait_for(in_child([] {}));
  const pid_t child = ::vfork();
  if (child == 0) ::_exit(3);
  wait_for(child);
  feed(layer, 2);
  return 5;
}

/// A server: makes the model first, then forks its workers.
int workers() {
  nn::Sequential net(make_layer(), nn::ReLU());
  net->eval();
  std::vector<pid_t> children;
  for (int i = 1; i <= 3; ++i) {
    children.push_back(in_child([&] {
      torch::NoGradGuard guard;
      for (int k = 0; k < i; ++k) net->forward(torch::full({1, 2}, 10. * i));
    }));
  }
  for (const pid_t child : children) wait_for(child);
  return 5;
}

/// Forks while other threads call modules and make new ones. No matrix products, because their libraries have
/// locks of their own.
int fork_busy() {
  std::atomic<bool> stop{false};
  std::atomic<int> warm{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      torch::NoGradGuard guard;
      const auto x = torch::ones({2});
      nn::ReLU kept;
      for (bool first = true; !stop; first = false) {
        kept(x);
        nn::Sigmoid()(x);
        if (first) ++warm;
      }
    });
  }
  // A thread's first operation takes a lock of LibTorch that nobody would release in a child.
  while (warm < 3) std::this_thread::yield();
  nn::Tanh activation;
  const auto x = torch::ones({2});
  int good = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = in_child([&] { activation(x); });
    int status = 0;
    ::waitpid(child, &status, 0);
    good += status == 0 ? 1 : 0;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  std::cout << "good: " << good << std::endl;
  return 5;
}

/// The child dies of SIGTERM, which must not affect its parent.
int fork_killed() {
  auto layer = make_layer();
  feed(layer, 1);
  wait_for(in_child([] {
    ::raise(SIGTERM);
    sleep_on();
  }));
  wait_for(in_child([&] {
    feed(layer, 10);
    ::raise(SIGTERM);
    sleep_on();
  }));
  wait_for(in_child([&] {
    feed(layer, 10);
    ::raise(SIGKILL);
  }));
  feed(layer, 2);
  return 5;
}

/// Children that are killed at any moment after they began to run a model, some of them before. In the n-th
/// forward of each, from 0 on, the linear layer's output is 2 n. Says how many forwards each had begun, and
/// ended.
int killed_children(int count, unsigned seed) {
  struct Shared {
    std::atomic<std::int64_t> begun, ended;
  };
  auto* const forwards = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  nn::Sequential net(make_layer(), nn::ReLU());
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> exponent(3, 5.3);  // 1 ms to 0.2 s
  for (int i = 0; i < count; ++i) {
    forwards->begun = forwards->ended = 0;
    const pid_t child = in_child([&] {
      torch::NoGradGuard guard;
      net->eval();
      for (;; ++forwards->ended) {
        ++forwards->begun;
        net->forward(torch::full({1, 2}, static_cast<double>(forwards->ended)));
      }
    });
    while (i % 4 != 0 && forwards->ended == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(std::pow(10, exponent(random))));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    std::cout << child << " " << forwards->begun << " " << forwards->ended << std::endl;
  }
  return 5;
}

int become_another() {
  auto layer = make_layer();
  feed(layer, 1);
  ::execlp("true", "true", nullptr);
  return 1;
}

// ---- endings

/// Runs until it is killed.
int feed_on() {
  auto layer = make_layer();
  for (int i = 0;; ++i) feed(layer, i);
}

int fed();

/// What others see of the process.
int visible() {
  fed();
  for (int number = 1; number < 32; ++number) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_DFL) std::cout << "signal " << number << " has a handler\n";
  }
  std::cout << std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}) << " threads\n";
  return 5;
}

/// Nothing runs behind it.
int raised() {
  std::cout << fed() << std::endl;
  ::raise(SIGTERM);
  std::cout << "it runs on" << std::endl;
  return 5;
}

/// As daemons do.
int closed() {
  auto layer = make_layer();
  feed(layer, 1);
  for (int file = 3; file < 4096; ++file) ::close(file);
  feed(layer, 2);
  feed(layer, 3);
  ::_exit(5);
}

int fed() {
  static auto layer = make_layer();
  for (const double value : {1., 2., 3.}) feed(layer, value);
  return 5;
}

int own_crash_handler() {
  ::signal(SIGSEGV, [](int) { ::_exit(3); });
  fed();
  ::raise(SIGSEGV);
  return 1;
}

int own_abort_handler() {
  ::signal(SIGABRT, [](int) { ::_exit(4); });
  fed();
  std::abort();
}

int own_term_handler() {
  ::signal(SIGTERM, [](int) { ::_exit(9); });
  fed();
  ::raise(SIGTERM);
  return 1;
}

int broken_pipe() {
  fed();
  int ends[2];
  if (::pipe(ends) != 0) return 1;
  ::close(ends[0]);
  const bool written = ::write(ends[1], "x", 1) == 1;
  std::cout << "still here " << written << std::endl;
  return 1;
}

int failed_assert() {
  fed();
#ifdef NDEBUG
#error "compile this without NDEBUG"
#endif
  assert(calls == 1);
  return 1;
}

/// Prints a line when it gets SIGUSR1 or SIGTERM, and finally the number of signals.
int count_signals() {
  ::signal(SIGUSR1, [](int) { ++calls; });
  static volatile sig_atomic_t stop = 0;
  ::signal(SIGTERM, [](int) { ++stop; });
  fed();
  std::cout << "pid " << ::getpid() << std::endl << "waiting" << std::endl;
  while (calls == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::cout << "heard " << SIGUSR1 << std::endl;
  while (stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::cout << "heard " << SIGTERM << std::endl;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // a duplicate signal has arrived by then
  std::cout << calls << " " << stop << std::endl;
  return 5;
}

int wait_to_be_killed() {
  fed();
  std::cout << "pid " << ::getpid() << std::endl << "waiting" << std::endl;
  sleep_on();
  return 1;
}

// ---- nothing to record

struct OwnImpl : nn::Module {
  OwnImpl() { weight = register_parameter("weight", torch::ones({2})); }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight;
};
TORCH_MODULE(Own);

struct OwnRootImpl : nn::Module {
  OwnRootImpl() : layer(register_module("layer", make_layer())), own(register_module("own", Own())) {}
  at::Tensor forward(const at::Tensor& x) { return layer(own(x)); }
  nn::Linear layer;
  Own own;
};
TORCH_MODULE(OwnRoot);

int operations() {
  std::cout << torch::ones({2}).sum().item<float>() << std::endl;
  return 5;
}

int on_stack() {
  nn::LinearImpl layer(2, 1);
  layer.forward(torch::ones({1, 2}));
  return 5;
}

int script() {
  torch::jit::Module module("M");
  module.define("def forward(self, x):\n  return x + 1\n");
  module.forward({torch::ones({2})});
  return 5;
}

int own() {
  Own own;
  own->eval();
  own(torch::ones({2}));
  return 5;
}

/// Aborts after its model was set up, before it runs.
int own_abort() {
  OwnRoot root;
  root->eval();
  std::abort();
}

int own_root() {
  OwnRoot root;
  const auto names = root->named_modules();
  torch::NoGradGuard guard;
  root(torch::full({1, 2}, 4.));
  return 5;
}

// ---- short-lived modules

constexpr int kRounds = 40;

/// The activations live for one expression.
int anew() {
  torch::NoGradGuard guard;
  auto first = make_layer();
  nn::Linear second(1, 1);
  for (int i = 0; i < kRounds; ++i) {
    auto x = nn::ReLU()(first(torch::full({1, 2}, double(i))));
    x = nn::ReLU()(second(x));
    nn::Sigmoid()(nn::ReLU()(x));
  }
  return 5;
}

/// They live until the end of the forward and are first called in it.
int anew_in_scope() {
  torch::NoGradGuard guard;
  auto layer = make_layer();
  for (int i = 0; i < kRounds; ++i) {
    nn::ReLU before, after, last;
    last(after(layer(before(torch::full({1, 2}, double(i))))));
  }
  return 5;
}

/// Each request makes the whole model again.
int anew_models() {
  torch::NoGradGuard guard;
  for (int i = 0; i < kRounds; ++i) {
    OwnRoot root;
    root->eval();
    root(torch::full({1, 2}, double(i)));
  }
  return 5;
}

struct TwoImpl : nn::Module {
  explicit TwoImpl(bool b_first) {
    if (b_first) b = make_layer();
    a = register_module("a", make_layer());
    if (!b_first) b = make_layer();
    register_module("b", b);
  }
  at::Tensor forward(const at::Tensor& x) { return b(a(x).expand({1, 2})); }
  nn::Linear a{nullptr}, b{nullptr};
};
TORCH_MODULE(Two);

/// One model after the other, each called several times. The layers are made in one order and the other in
/// turn, so that a layer takes the address of another one of the model before.
int models_in_turn(bool named, bool kept, bool trained) {
  std::vector<Two> all;
  for (int i = 0; i < 6; ++i) {
    Two net(i % 2 == 1);
    if (named) net->eval();
    if (trained) trained = !net->parameters().empty();
    for (int k = 0; k < 3; ++k) {
      const at::Tensor result = net(torch::full({1, 2}, double(3 * i + k)));
      if (trained) result.sum().backward();
    }
    if (kept) all.push_back(net);
  }
  return 5;
}

/// Gradients arrive after the module is gone and another one has its address.
int anew_gradients() {
  auto layer = make_layer();
  std::vector<at::Tensor> outputs;
  for (int i = 0; i < 5; ++i) outputs.push_back(nn::Sigmoid()(layer(torch::full({1, 2}, double(i)))));
  torch::stack(outputs).sum().backward();
  return 5;
}

/// Layers of two sizes, one after the other: they are not the same layer.
int two_sizes() {
  torch::NoGradGuard guard;
  for (const int size : {2, 3}) {
    for (int i = 0; i < kRounds; ++i) nn::Linear(size, 1)(torch::ones({1, size}));
  }
  return 5;
}

/// More layers than the limit, and new modules all the time.
int many() {
  torch::NoGradGuard guard;
  std::vector<nn::Identity> layers;
  const auto x = torch::ones({1});
  for (int i = 0; i < 10003; ++i) layers.emplace_back();
  for (auto& layer : layers) layer(x);
  return 5;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::string mode = argc > 1 ? argv[1] : "return";
  const std::map<std::string, std::function<int()>> modes{
      {"fork_after", fork_after},
      {"fork_exit", fork_exit},
      {"fork_first", fork_first},
      {"fork_twice", fork_twice},
      {"fork_idle", fork_idle},
      {"workers", workers},
      {"fork_busy", fork_busy},
      {"fork_killed", fork_killed},
      {"killed_children", [&] { return killed_children(std::stoi(argv[2]), std::stoi(argv[3])); }},
      {"become_another", become_another},
      {"return", fed},
      {"feed_on", feed_on},
      {"visible", visible},
      {"raised", raised},
      {"closed", closed},
      {"_exit", [] { return ::_exit(fed()), 0; }},
      {"_Exit", [] { return std::_Exit(fed()), 0; }},
      {"quick_exit", [] { return std::quick_exit(fed()), 0; }},
      {"abort", [] { return fed(), std::abort(), 0; }},
      {"assert", failed_assert},
      {"quit", [] { return fed(), ::raise(SIGQUIT), sleep_on(), 0; }},
      {"alarm", [] { return fed(), ::raise(SIGALRM), sleep_on(), 0; }},
      {"broken_pipe", broken_pipe},
      {"own_term_handler", own_term_handler},
      {"own_abort_handler", own_abort_handler},
      {"segv", [] { return fed(), ::raise(SIGSEGV), 0; }},
      {"own_crash_handler", own_crash_handler},
      {"kill", [] { return fed(), ::raise(SIGKILL), 0; }},
      {"count_signals", count_signals},
      {"wait", wait_to_be_killed},
      {"operations", operations},
      {"on_stack", on_stack},
      {"script", script},
      {"own", own},
      {"own_abort", own_abort},
      {"own_root", own_root},
      {"anew", anew},
      {"anew_in_scope", anew_in_scope},
      {"anew_models", anew_models},
      {"in_turn", [] { return models_in_turn(true, false, false); }},
      {"in_turn_unnamed", [] { return models_in_turn(false, false, false); }},
      {"in_turn_kept", [] { return models_in_turn(true, true, false); }},
      {"in_turn_trained", [] { return models_in_turn(true, false, true); }},
      {"anew_gradients", anew_gradients},
      {"two_sizes", two_sizes},
      {"many", many},
  };
  return modes.at(mode)();
}
