// A program that knows nothing of torchtap, whose models live in one place or another, and which works and
// ends as programs do:
//
//     ends WHAT
//
// What it prints is in the C library's buffer until the very end, so that it is lost where something crashes
// on the way out.
#include <dlfcn.h>
#include <err.h>
#include <torch/torch.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace nn = torch::nn;

namespace {

struct Net : nn::Module {
  nn::Linear first{register_module("first", nn::Linear(4, 4))};
  nn::Linear last{register_module("last", nn::Linear(4, 2))};
  nn::Linear unused{register_module("unused", nn::Linear(2, 2))};
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(first(x))); }
};

/// Runs the layer without a graph, and again in backward, as activation checkpointing does.
struct Again : torch::autograd::Function<Again> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, int64_t layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = layer;
    return (*reinterpret_cast<nn::Linear*>(layer))(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::AutoGradMode on(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor y = (*reinterpret_cast<nn::Linear*>(context->saved_data["layer"].toInt()))(x);
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

at::Tensor ones() {
  return torch::ones({8, 4});
}

void print(const char* what, const at::Tensor& result) {
  std::printf("%s %.9g\n", what, result.nan_to_num().sum().item<double>());
}

/// Steps of training, forwards, and at the end two whose values are no numbers.
void run(Net& net) {
  net.train();
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    net.forward(ones() + step).sum().backward();
    optimizer.step();
  }
  const at::Tensor x = ones().requires_grad_();
  Again::apply(x, reinterpret_cast<int64_t>(&net.first)).sum().backward();
  print("gradient", x.grad());
  net.eval();
  const torch::NoGradGuard guard;
  for (int i = 0; i < 4; ++i) print("forward", net.forward(ones() * i));
  for (int i = 0; i < 2; ++i) print("no number", net.forward(torch::full({8, 4}, NAN)));
}

/// A forward without anything around it that tells where it ends.
void run_once(Net& net, const char* what) {
  const torch::NoGradGuard guard;
  print(what, net.forward(ones()));
}

Net& kept() {
  static Net* const net = new Net;
  return *net;
}

int on_stack() {
  Net net;
  run(net);
  return 3;
}

int on_stack_in_turn() {
  for (int i = 0; i < 3; ++i) {
    Net net;
    run(net);
  }
  return 3;
}

int in_static() {
  static Net net;
  static nn::Sequential rest{nn::Linear(2, 2)};
  run(net);
  print("rest", rest->forward(torch::ones({2})));
  return 3;
}

int in_thread_local() {
  thread_local Net net;
  thread_local const auto shared = std::make_shared<Net>();
  run(net);
  run(*shared);
  return 3;
}

int in_atexit() {
  std::atexit([] { run_once(kept(), "atexit"); });
  run(kept());
  return 3;
}

/// Works when it is destroyed.
struct Last {
  const char* what;
  Net& net = kept();
  ~Last() {
    net.eval();
    run_once(net, what);
    run_once(net, what);
  }
};

int in_destructors() {
  static const Last in_static{"static"};
  thread_local const Last in_thread{"thread_local"};
  static_cast<void>(in_static);
  static_cast<void>(in_thread);
  run(kept());
  return 3;
}

/// A thread that is in the middle of a forward when the program ends, and one that has ended in the middle.
int in_threads() {
  static std::atomic<bool> is_there{false};
  const auto net = std::make_shared<Net>();
  net->eval();
  std::thread([net] { net->first(ones()); }).join();
  std::thread([net] {
    const torch::NoGradGuard guard;
    for (int i = 0; i < 20; ++i) net->forward(ones());
    net->first(ones());
    is_there = true;
    for (;;) ::pause();
  }).detach();
  while (!is_there) std::this_thread::yield();
  run(kept());
  return 3;
}

/// Stacks of threads may be small; what the C library and LibTorch keep for a thread takes a part of it.
int in_small_thread() {
  pthread_attr_t small;
  ::pthread_attr_init(&small);
  ::pthread_attr_setstacksize(&small, TORCH_VERSION_MAJOR == 1 ? 128 << 10 : 512 << 10);
  pthread_t thread;
  const auto work = [](void* /*nothing*/) -> void* {
    const torch::NoGradGuard guard;
    kept().eval();
    for (int i = 0; i < 4; ++i) print("forward", kept().forward(ones() * i));
    for (int i = 0; i < 2; ++i) print("no number", kept().forward(torch::full({8, 4}, NAN)));
    return nullptr;
  };
  ::pthread_create(&thread, &small, work, nullptr);
  ::pthread_join(thread, nullptr);
  return 3;
}

/// The code of a model's reference counts goes with its library.
int closes_plug_in() {
  run(kept());
  for (int i = 0; i < 3; ++i) {
    void* const plug_in = ::dlopen(TORCHTAP_TEST_PLUG_IN, RTLD_NOW | RTLD_LOCAL);
    const auto run_it = reinterpret_cast<double (*)(double)>(::dlsym(plug_in, "run_plug_in"));
    for (int k = 0; k < 3; ++k) std::printf("plug-in %.9g\n", run_it(k));
    ::dlclose(plug_in);
    const auto net = std::make_shared<Net>();
    net->eval();
    run_once(*net, "between");
  }
  return 3;
}

int exit_in_thread() {
  run(kept());
  std::thread([] {
    run(kept());
    std::exit(4);
  }).join();
  return 3;
}

/// By a function of the C library, with work that comes later.
int err_out() {
  std::atexit([] { run_once(kept(), "atexit"); });
  run(kept());
  ::errx(4, "as asked");
}

// Since LibTorch 2.3 `allocate` may change the allocator, and there is `copy_data`.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define ALLOCATE_CONST
#define COPY_DATA 1
#else
#define ALLOCATE_CONST const
#define COPY_DATA 0
#endif

/// Ends the program in the middle of what torchtap does with the layer's result, which takes memory. Threads
/// of torchtap take memory, too; the program ends in its own, so that it ends once.
struct Failing final : c10::Allocator {
  c10::Allocator* const all = c10::GetAllocator(c10::DeviceType::CPU);
  const std::thread::id own = std::this_thread::get_id();
  mutable int left = -1;
  c10::DataPtr allocate(std::size_t size) ALLOCATE_CONST override {
    if (std::this_thread::get_id() == own && left > 0 && --left == 0) std::terminate();
    return all->allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return all->raw_deleter(); }
#if COPY_DATA
  void copy_data(void* to, const void* from, std::size_t size) const override {
    all->copy_data(to, from, size);
  }
#endif
};

int terminate() {
  static Failing memory;
  c10::SetAllocator(c10::DeviceType::CPU, &memory, /*priority=*/255);
  run(kept());
  const torch::NoGradGuard guard;
  const at::Tensor x = ones();
  kept().first(x);
  memory.left = 2;  // the layer's result takes the first
  kept().first(x);
  std::terminate();
}

}  // namespace

int main(int /*argc*/, char** argv) {
  at::set_num_threads(1);
  torch::manual_seed(0);
  const std::map<std::string, std::function<int()>> all{{"on_stack", on_stack},
                                                        {"on_stack_in_turn", on_stack_in_turn},
                                                        {"in_static", in_static},
                                                        {"in_thread_local", in_thread_local},
                                                        {"in_atexit", in_atexit},
                                                        {"in_destructors", in_destructors},
                                                        {"in_threads", in_threads},
                                                        {"exit_in_thread", exit_in_thread},
                                                        {"in_small_thread", in_small_thread},
                                                        {"closes_plug_in", closes_plug_in},
                                                        {"err", err_out},
                                                        {"terminate", terminate}};
  return all.at(argv[1])();
}
