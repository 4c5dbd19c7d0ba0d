// The example in one process.
#include "ranks.hpp"

namespace ranks {

int rank() {
  return 0;
}
int size() {
  return 1;
}
void merge(torchtap::recorders::Recorder&) {}
std::int64_t sum(std::int64_t number) {
  return number;
}

}  // namespace ranks
