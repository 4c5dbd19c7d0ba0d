/// Speed of writing and reading recordings, compared with the system's own. Files go to the folder
/// TORCHTAP_BENCH_FOLDER, by default the current one. `bench/run` prints the ratios.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <torchtap/base/remove_folder.hpp>
#include <torchtap/hooks/hooks.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/spool.hpp>

#if TORCHTAP_BENCH_TRANSPARENT
#include <torchtap/transparent/transparent.hpp>

#include "zoo/resnet.hpp"
#endif

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

/// Writes the bytes of `large()` to a new file with plain system calls.
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
    // Touches every page, so that mapping pays the cost that reading has paid.
    benchmark::DoNotOptimize(value.tensor().view({-1, 1000}).select(1, 0).sum());
  }
  count_bytes(state);
  ::unlink(path.c_str());
}

// Called directly, which costs nothing; the bare call of an entry of a Sequential takes a quarter of a
// microsecond.
struct NothingImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input) { return input; }
};
TORCHTAP_MODULE(Nothing);

std::int64_t bytes_in(const std::string& directory) {
  std::int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    bytes += static_cast<std::int64_t>(file.file_size());
  }
  return bytes;
}

/// A field of `/proc/self/status`, in bytes: "VmRSS", "VmHWM".
double memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, field.size(), field) == 0) return std::stod(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

/// Ten million samples of 64 floats, from the hook to complete files.
void spool_small(benchmark::State& state, bool sync) {
  constexpr std::int64_t kSamples = 10'000'000;
  const std::string directory = folder() + "small";
  const at::Tensor sample = at::rand({64});
  for (auto _ : state) {
    Nothing module;
    tap::recorders::ForwardPre recorder(tap::recorders::RecorderOptions().spool(
        directory, tap::storage::SpoolOptions().mkdir(true).overwrite(true).sync(sync)));
    recorder.modules(module);
    for (std::int64_t i = 0; i < kSamples; ++i) benchmark::DoNotOptimize(module(sample));
    recorder.save(directory);
  }
  state.SetItemsProcessed(state.iterations() * kSamples);
  state.counters["bytes_on_disk"] = static_cast<double>(bytes_in(directory));
  state.counters["bytes_data"] = static_cast<double>(kSamples) * static_cast<double>(sample.nbytes());
  torchtap::base::remove_folder(directory);
}

/// Writes as many bytes as `resnet` spools with plain system calls: files of 64 MiB, synced one by one.
void bare_shards(benchmark::State& state) {
  constexpr std::size_t kShard = std::size_t{64} << 20;
  constexpr int kShards = 105;
  const auto* bytes = static_cast<const char*>(large().data_ptr());
  const std::string directory = folder() + "bare";
  for (auto _ : state) {
    std::filesystem::create_directory(directory);
    for (int shard = 0; shard < kShards; ++shard) {
      const std::string path = directory + "/" + std::to_string(shard);
      const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      for (std::size_t at = 0; at < kShard;) {
        const ::ssize_t written = ::write(fd, bytes + at, kShard - at);
        if (written <= 0) return require(false, state);
        at += static_cast<std::size_t>(written);
      }
      require(::fsync(fd) == 0, state);
      ::close(fd);
    }
    state.PauseTiming();
    torchtap::base::remove_folder(directory);
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kShards * kShard));
}
BENCHMARK(bare_shards)->UseRealTime()->Iterations(1)->Unit(benchmark::kMillisecond);

#if TORCHTAP_BENCH_TRANSPARENT
constexpr int kForwards = 200;

/// ResNet-18 on one image, bare and with every activation of every module spooled, to a disk or to memory in
/// place of a disk that always keeps up. Measures the forwards alone, as a user's loop would see them, and
/// until everything is written.
void resnet(benchmark::State& state, const char* to) {
  const bool spooled = to != nullptr;
  const torch::NoGradGuard no_grad;
  zoo::ResNet18 net(zoo::ResNet18Options().num_classes(1000));
  net->eval();
  const at::Tensor image = at::rand({1, 3, 224, 224});
  const std::string directory = (spooled && *to != 0 ? to : folder()) + std::string("resnet");
  std::error_code none;
  const auto space = std::filesystem::space(std::filesystem::path(directory).parent_path(), none);
  if (spooled && (none || space.available < kForwards * std::uintmax_t{40'000'000}))
    return state.SkipWithError("there is no room");
  net(image);
  for (auto _ : state) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto forwards_end = start;
    double resident_early = 0, resident_late = 0;
    {
      tap::recorders::ForwardOutput recorder(
          spooled ? tap::recorders::RecorderOptions().spool(
                        directory, tap::storage::SpoolOptions().mkdir(true).overwrite(true))
                  : tap::recorders::RecorderOptions());
      if (spooled) recorder.modules(*net);
      for (int i = 0; i < kForwards; ++i) {
        benchmark::DoNotOptimize(net(image));
        if (i == kForwards / 4) resident_early = memory("VmRSS:");
      }
      resident_late = memory("VmRSS:");
      forwards_end = Clock::now();
    }
    const std::chrono::duration<double> forwards = forwards_end - start, all = Clock::now() - start;
    state.SetIterationTime(forwards.count());
    state.counters["milliseconds_to_disk"] = all.count() * 1e3;
    state.counters["resident_early"] = resident_early;
    state.counters["resident_late"] = resident_late;
    if (spooled) state.counters["bytes_on_disk"] = static_cast<double>(bytes_in(directory));
  }
  torchtap::base::remove_folder(directory);
}
BENCHMARK_CAPTURE(resnet, bare, nullptr)->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resnet, in_memory, "/dev/shm/torchtap-bench-")
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(resnet, spooled, "")->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
#endif

BENCHMARK_CAPTURE(spool_small, cached, false)->UseRealTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(spool_small, synced, true)->UseRealTime()->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bare_write, cached, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(save_value, cached, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bare_write, synced, true)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(save_value, synced, true)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_value, read, false)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_value, mapped, true)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
