#include <ATen/Functions.h>
#include <stdlib.h>

#include <torchtap/distributed/distributed.hpp>
#include <torchtap/reductions/sum.hpp>

int main() {
  ::setenv("RANK", "0", 1);
  ::setenv("WORLD_SIZE", "1", 1);
  torchtap::reductions::Sum sum;
  sum.update(at::ones({3}));
  torchtap::distributed::merge_ranks(sum, torchtap::distributed::from_environment());
  return sum.results().at("value").equal(at::ones({3})) ? 0 : 1;
}
