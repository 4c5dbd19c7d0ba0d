/// Dumps compared with write(2) of the same bytes in the same run, and gathers of random rows with
/// index_select of the same memory. Files go to the folder TORCHTAP_BENCH_FOLDER, by default the current one.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include <torchtap/base/remove_folder.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/rows/rows.hpp>

namespace {

namespace tap = torchtap;

/// Passes its input on, so that a forward costs nothing.
struct SameImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCHTAP_MODULE(Same);

std::string place(const char* name) {
  const char* const folder = std::getenv("TORCHTAP_BENCH_FOLDER");
  return std::string(folder == nullptr ? "." : folder) + "/" + name;
}

/// A batch of rows, [512, floats].
at::Tensor batch(std::int64_t floats) {
  at::manual_seed(0);
  return at::rand({512, floats});
}

void count(benchmark::State& state, const at::Tensor& x, std::int64_t calls) {
  state.SetBytesProcessed(state.iterations() * calls * static_cast<std::int64_t>(x.nbytes()));
}

void bare_write(benchmark::State& state, std::int64_t floats, std::int64_t calls) {
  const at::Tensor x = batch(floats);
  const std::string path = place("rows_bare.bin");
  for (auto _ : state) {
    state.PauseTiming();
    ::unlink(path.c_str());
    state.ResumeTiming();
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (std::int64_t i = 0; i < calls; ++i) {
      if (::write(file, x.data_ptr(), x.nbytes()) != static_cast<::ssize_t>(x.nbytes()))
        state.SkipWithError("the system refused");
    }
    ::close(file);
  }
  count(state, x, calls);
  ::unlink(path.c_str());
}

/// From the first forward until the dump is finished.
void write_rows(benchmark::State& state, std::int64_t floats, std::int64_t calls, bool masked,
                std::int64_t queue = std::int64_t{256} << 20) {
  const at::Tensor x = batch(floats), label = at::zeros({512}, at::kLong), mask = at::arange(512).lt(512);
  const std::string path = place("rows_dump");
  for (auto _ : state) {
    state.PauseTiming();
    tap::base::remove_folder(path);
    Same net;
    tap::recorders::RecorderOptions how;
    how.rows({0}).beside({"label"}).spool(
        path, tap::storage::SpoolOptions().mkdir(true).sync(false).queue_bytes(queue));
    if (masked) how.where("mask");
    auto dump = std::make_unique<tap::recorders::ForwardOutput>(how);
    dump->attach(*net);
    const tap::core::Context named({{"label", label}, {"mask", mask}});
    state.ResumeTiming();
    for (std::int64_t i = 0; i < calls; ++i) net->forward(x);
    dump.reset();
  }
  count(state, x, calls);
  tap::base::remove_folder(path);
}

/// 4096 random rows of 8 KB, of a dump of 512 MB in the page cache.
void gather(benchmark::State& state, bool bare) {
  const std::string path = place("rows_gather");
  tap::base::remove_folder(path);
  const at::Tensor x = batch(2048);
  constexpr std::int64_t kCalls = 128;
  {
    Same net;
    tap::recorders::ForwardOutput dump(tap::recorders::RecorderOptions().rows({0}).spool(
        path, tap::storage::SpoolOptions().mkdir(true).sync(false)));
    dump.attach(*net);
    for (std::int64_t i = 0; i < kCalls; ++i) net->forward(x);
  }
  const tap::rows::Rows rows(tap::storage::load(path).at(""));
  const at::Tensor memory = bare ? rows.slice(0, rows.size()) : at::Tensor();
  at::Tensor out = at::empty({4096, 2048});
  for (auto _ : state) {
    const at::Tensor some = at::randint(rows.size(), {4096}, at::kLong);
    if (bare) {
      at::index_select_out(out, memory, 0, some);
    } else {
      rows.gather(some, out);
    }
  }
  count(state, out, 1);
  tap::base::remove_folder(path);
}

constexpr std::int64_t kOf1KB = 512, kOf8KB = 64;  // calls: 256 MB

BENCHMARK_CAPTURE(bare_write, 1KB, 256, kOf1KB)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(write_rows, 1KB, 256, kOf1KB, false)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(write_rows, 1KB_masked, 256, kOf1KB, true)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(bare_write, 8KB, 2048, kOf8KB)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(write_rows, 8KB, 2048, kOf8KB, false)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(write_rows, 8KB_masked, 2048, kOf8KB, true)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(write_rows, 8KB_short_queue, 2048, kOf8KB, false, std::int64_t{8} << 20)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(gather, rows, false)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(gather, index_select, true)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(write_rows, small, 16, 4, false)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
