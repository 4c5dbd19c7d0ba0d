/// Cost of a stream in the thread that runs the model, with nobody watching and with readers in other
/// processes, compared with an empty hook and with a copy of the same bytes. `bench/run` prints the ratios.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <torch/nn/modules/container/any.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/views/stream/stream.hpp>

namespace tap = torchtap;
namespace stream = tap::views::stream;

namespace {

/// Returns its input: what a call costs is what torchtap adds.
struct NothingImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) { return input; }
};
TORCH_MODULE(Nothing);

/// A publisher, and readers in processes of their own, which touch each page of what comes.
class Published {
 public:
  explicit Published(int readers) : directory_("/tmp/torchtap-bench-XXXXXX") {
    if (::mkdtemp(directory_.data()) == nullptr) ::abort();
    for (int i = 0; i < readers; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) read();
      pids_.push_back(pid);
    }
    publisher_.emplace("bench", stream::PublisherOptions().directory(directory_));
    while (publisher_->readers().size() < pids_.size())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~Published() {
    publisher_.reset();
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
    ::rmdir(directory_.c_str());
  }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;
  stream::Publisher& operator*() { return *publisher_; }

 private:
  [[noreturn]] void read() const {
    stream::Reader reader("bench", stream::Subscription().when_full(stream::WhenFull::skip),
                          stream::ReaderOptions().directory(directory_).wait(std::chrono::seconds(20)));
    volatile char touched = 0;
    while (!reader.ended()) {
      const auto frame = reader.next(std::chrono::seconds(1));
      for (std::uint64_t i = 0; frame.has_value() && i < frame->data_bytes; i += 4096) {
        touched = static_cast<char>(touched + static_cast<const char*>(frame->data)[i]);
      }
    }
    ::_exit(0);
  }

  std::string directory_;
  std::vector<pid_t> pids_;
  std::optional<stream::Publisher> publisher_;
};

void call(benchmark::State& state, torch::nn::AnyModule& module) {
  const c10::NoGradGuard no_grad;
  const at::Tensor input = at::ones({1, 100});
  for (auto _ : state) benchmark::DoNotOptimize(module.forward(input));
}

void entry_empty_output_hook(benchmark::State& state) {
  torch::nn::AnyModule module{Nothing()};
  const auto handle = tap::hooks::attach(module, tap::hooks::Kind::forward_output, [](tap::hooks::Event&) {});
  call(state, module);
}
BENCHMARK(entry_empty_output_hook);

void entry_streamed(benchmark::State& state) {
  Published published(static_cast<int>(state.range(0)));
  torch::nn::AnyModule module{Nothing()};
  tap::recorders::ForwardOutput recorder(tap::recorders::RecorderOptions().stream(*published));
  recorder.module(module);
  call(state, module);
}
BENCHMARK(entry_streamed)->Arg(0)->Arg(1)->Arg(3);

/// Tensors as large as `state.range(0)` bytes, to one reader.
void publish(benchmark::State& state) {
  Published published(1);
  stream::Source source = (*published).source("bench");
  const at::Tensor tensor = at::ones({state.range(0) / 4});
  for (auto _ : state) source.publish(tensor);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(publish)->Arg(1 << 20)->Arg(16 << 20)->Arg(64 << 20)->UseRealTime();

/// A copy to where as much memory was used meanwhile as a publisher has.
void copy(benchmark::State& state) {
  const at::Tensor tensor = at::ones({state.range(0) / 4});
  std::vector<char> memory(std::size_t{256} << 20, 1);
  std::size_t at = 0;
  for (auto _ : state) {
    if (at + tensor.nbytes() > memory.size()) at = 0;
    std::memcpy(memory.data() + at, tensor.data_ptr(), tensor.nbytes());
    benchmark::ClobberMemory();
    at += tensor.nbytes();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(copy)->Arg(1 << 20)->Arg(16 << 20)->Arg(64 << 20)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
