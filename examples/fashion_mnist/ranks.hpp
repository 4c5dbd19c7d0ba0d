#pragma once

/// The ranks of the example: one process alone (alone.cpp), or several that share the test images and merge
/// what they recorded (examples/fashion_mnist_ranks).

#include <cstdint>

#include <torchtap/recorders/recorder.hpp>

namespace ranks {

/// This process, from 0.
int rank();
/// The number of processes that test images.
int size();
/// Gives all processes what one would have recorded.
void merge(torchtap::recorders::Recorder& recorder);
/// The sum over all processes.
std::int64_t sum(std::int64_t number);

}  // namespace ranks
