// One rank of the benchmark of torchtap::distributed, which bench/ranks starts several times: what merging a
// state costs, beside an allreduce of as many bytes.
//
// usage: bench_distributed ELEMENTS ROUNDS, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; rank 0 prints
// JSON
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gloo/transport/device.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <torchtap/distributed/detail/tcp_options.hpp>
#include <torchtap/distributed/distributed.hpp>
#include <torchtap/reductions/moments.hpp>

namespace {

using Clock = std::chrono::steady_clock;
using Gloo = c10d::ProcessGroupGloo;
namespace distributed = torchtap::distributed;
using torchtap::reductions::Moments;

int number(const char* name) {
  return std::atoi(std::getenv(name));
}

struct Run {
  c10::intrusive_ptr<Gloo> gloo;
  int rank;
  std::map<std::string, std::vector<double>> seconds;

  /// Times `step` from when all ranks are ready until all are done.
  void time(const std::string& name, const std::function<void()>& step) {
    gloo->barrier()->wait();
    const auto begin = Clock::now();
    step();
    gloo->barrier()->wait();
    seconds[name].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
};

}  // namespace

int main(int, char** argv) {
  at::set_num_threads(1);
  const std::int64_t elements = std::atoll(argv[1]);
  const int rounds = std::atoi(argv[2]);
  const int rank = number("RANK"), size = number("WORLD_SIZE");
  c10d::TCPStoreOptions tcp = distributed::detail::tcp_options();
  tcp.port = static_cast<std::uint16_t>(number("MASTER_PORT"));
  tcp.isServer = rank == 0;
  tcp.numWorkers = static_cast<std::size_t>(size);
  const c10::intrusive_ptr<c10d::Store> store =
      c10::make_intrusive<c10d::TCPStore>(std::getenv("MASTER_ADDR"), tcp);
  const auto options = Gloo::Options::create();
  options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  Run run{
      c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store), rank, size, options),
      rank,
      {}};

  const distributed::Group group(run.gloo),
      with_store(run.gloo, c10::make_intrusive<c10d::PrefixStore>("tap", store));
  const distributed::Group store_alone(c10::make_intrusive<c10d::PrefixStore>("alone", store), rank, size);
  Moments moments;
  for (int i = 0; i < 3; ++i) moments.update(at::randn({elements}) + rank);
  const std::int64_t bytes = 4 * 8 * elements;  // mean and three central moments in float64
  at::Tensor as_many = at::ones({4 * elements}, at::kDouble);
  const auto merge = [&](const std::string& name, const distributed::Group& over,
                         const distributed::MergeRanksOptions& how) {
    Moments copy = moments;
    run.time(name, [&] { distributed::merge_ranks(copy, over, how); });
  };
  for (int round = 0; round < rounds + 1; ++round) {
    if (round == 1) run.seconds.clear();  // the first round warms up
    run.time("allreduce", [&] {
      std::vector<at::Tensor> tensors{as_many};
      run.gloo->allreduce(tensors)->wait();
    });
    merge("merge", group, {});
    merge("merge, with store", with_store, {});
    merge("merge, tree", group, distributed::MergeRanksOptions().order(distributed::Order::tree));
    merge("merge, root only", group, distributed::MergeRanksOptions().everywhere(false));
    if (bytes <= std::int64_t{64} << 20) merge("merge, store alone", store_alone, {});
  }
  if (rank == 0) {
    std::cout << "{\"ranks\": " << size << ", \"bytes\": " << bytes << ", \"seconds\": {";
    const char* separator = "";
    for (auto& [name, all] : run.seconds) {
      std::sort(all.begin(), all.end());
      std::cout << separator << "\"" << name << "\": " << all[all.size() / 2];
      separator = ", ";
    }
    std::cout << "}}" << std::endl;
  }
  run.gloo->barrier()->wait();
  store->add("done", 1);  // rank 0 serves the store
  while (rank == 0 && store->add("done", 0) < size) {
  }
  return 0;
}
