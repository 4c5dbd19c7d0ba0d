/// How fast recordings reach the disk and come back, beside what the system itself takes. Files go to the
/// folder TORCHTAP_BENCH_FOLDER, else to the current one. `bench/run` prints the ratios.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <torchtap/storage/file.hpp>

namespace tap = torchtap;

namespace {

constexpr std::int64_t kLarge = 50'000'000;  // floats: 200 MB

std::string folder() {
  const char* name = std::getenv("TORCHTAP_BENCH_FOLDER");
  return std::string(name == nullptr ? "." : name) + "/";
}

const at::Tensor& large() {
  static const at::Tensor tensor = at::rand({kLarge});
  return tensor;
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(large().nbytes()));
}

void require(bool good, benchmark::State& state) {
  if (!good) state.SkipWithError("the system refused");
}

/// A new file with the bytes of `large()`, as plainly as it can be written.
void bare_write(benchmark::State& state, bool sync) {
  const std::string path = folder() + "bare.bin";
  const auto* bytes = static_cast<const char*>(large().data_ptr());
  for (auto _ : state) {
    state.PauseTiming();
    ::unlink(path.c_str());
    state.ResumeTiming();
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (std::size_t at = 0; at < large().nbytes();) {
      const ::ssize_t written = ::write(fd, bytes + at, large().nbytes() - at);
      if (written <= 0) return require(false, state);
      at += static_cast<std::size_t>(written);
    }
    if (sync) require(::fsync(fd) == 0, state);
    ::close(fd);
  }
  count_bytes(state);
  ::unlink(path.c_str());
}

void save_value(benchmark::State& state, bool sync) {
  const std::string path = folder() + "value.pt";
  for (auto _ : state) {
    state.PauseTiming();
    ::unlink(path.c_str());
    state.ResumeTiming();
    tap::storage::save_value(path, large(), tap::storage::SaveOptions().sync(sync));
  }
  count_bytes(state);
  ::unlink(path.c_str());
}

void load_value(benchmark::State& state, bool mmap) {
  const std::string path = folder() + "loaded.pt";
  tap::storage::save_value(path, large(), tap::storage::SaveOptions().sync(false).overwrite(true));
  for (auto _ : state) {
    const auto value = tap::storage::load_value(path, tap::storage::LoadOptions().mmap(mmap));
    // Every page is touched, so that mapping pays for what reading has paid for.
    benchmark::DoNotOptimize(value.tensor().view({-1, 1000}).select(1, 0).sum());
  }
  count_bytes(state);
  ::unlink(path.c_str());
}

BENCHMARK_CAPTURE(bare_write, cached, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(save_value, cached, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bare_write, synced, true)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(save_value, synced, true)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_value, read, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_value, mapped, true)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
