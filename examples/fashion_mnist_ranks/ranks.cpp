// The main example on many ranks: each tests a part of the images, and torchtap::distributed merges what they
// recorded. Start it as `torchrun --no_python --nproc_per_node 4 fashion_mnist_ranks`, or with RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT set for each process. Rank 0 writes the files that one process
// writes; the same check.py checks them.
#include "../fashion_mnist/ranks.hpp"

#include <ATen/Functions.h>

#include <torchtap/distributed/distributed.hpp>
#include <torchtap/reductions/sum.hpp>

namespace tap = torchtap;

namespace ranks {
namespace {

const tap::distributed::Group& group() {
  static const tap::distributed::Group all = tap::distributed::from_environment();
  return all;
}

}  // namespace

int rank() {
  return group().rank();
}
int size() {
  // The last ranks of the group may have no data to bring: those count as 0.
  static const auto all = static_cast<int>(sum(1));
  return all;
}
void merge(tap::recorders::Recorder& recorder) {
  tap::distributed::merge_ranks(recorder, group());
}
std::int64_t sum(std::int64_t number) {
  tap::reductions::Sum all;
  all.update(at::scalar_tensor(number, at::kLong));
  tap::distributed::merge_ranks(all, group());
  return all.results().at("value").item<std::int64_t>();
}

}  // namespace ranks
