#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

/// Two devices of LibTorch's type PrivateUse1. Their memory is the CPU's; their work waits in a queue until
/// the test has it done, as a device's does that is behind its program.
namespace torchtap_test::fake {

inline c10::Device device(int index = 0) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

/// A copy of a tensor on a fake device. It is there at once.
at::Tensor on_device(const at::Tensor& tensor, int index = 0);

/// Has the first `count` jobs of a device done that wait there, or all of them.
void run(int index = 0, std::int64_t count = INT64_MAX);
/// Jobs that wait.
std::int64_t waiting(int index = 0);

/// Work for a device, as a kernel's launch is.
void submit(int index, std::function<void()> job);

/// Makes another stream the thread's current one on both devices, while it lives. All work of a device is
/// done in the order in which it was submitted.
class OnStream {
 public:
  explicit OnStream(std::int64_t stream);
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;
  ~OnStream();

 private:
  std::int64_t former_;
};

/// From now on memory is given back when the work has been done that was submitted before, as CUDA's
/// allocator does for one stream, and not at once. What is given back in a capture stays.
void give_back_in_order();

/// Jobs that are done again with each replay, and the memory that they use.
struct Graph {
  std::vector<std::function<void()>> jobs;
  std::vector<at::Tensor> memory;
};
/// From now on work for the device goes into a graph and is not done; waiting for the device throws.
void begin_capture(int index = 0);
Graph end_capture(int index = 0);
/// The number of the capture that the device is in, from 1; 0 if it is in none.
std::uint64_t capture(int index = 0);
void replay(const Graph& graph, int index = 0);

/// What the devices' backend was asked for so far, by any thread.
struct Counters {
  std::int64_t synchronizations = 0;  // calls that waited until a device had done its work
  std::int64_t events = 0;            // that exist
  std::int64_t blocked = 0;           // streams that wait for an event
  std::int64_t recorded = 0;          // `recordDataPtrOnStream`
  std::int64_t wrong_device = 0;      // questions to a device that was not the thread's current one
  std::int64_t bytes = 0;             // of the devices' memory in use
  std::int64_t pinned = 0;            // times that pinned memory was taken
};
Counters counters();

/// What fails from now on.
enum class Failing { nothing, events, questions, copies };
void fail(Failing what);

/// Whether the backend has pinned memory: not if TORCHTAP_TEST_UNPINNED is in the environment.
bool pins();

}  // namespace torchtap_test::fake
