#pragma once

#include <ATen/ATen.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <torchtap/views/monitor/detail/flight_recorder.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/read_ring.hpp>
#include <torchtap/views/monitor/incident.hpp>

#include "tests/support.hpp"

/// What the tests of rings and incidents need.
namespace torchtap_test {

namespace monitor = torchtap::views::monitor;
namespace parts = torchtap::views::monitor::detail;

/// The inputs or outputs of one call, as a hook sees them.
class Given {
 public:
  Given(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {  // NOLINT: a list of tensors
    for (at::Tensor& tensor : tensors_) {
      if (tensor.defined()) {
        slots_.push_back(tensor);
      } else {
        slots_.push_absent();
      }
    }
  }
  operator const torchtap::hooks::Tensors&() const { return slots_; }  // NOLINT

 private:
  std::vector<at::Tensor> tensors_;
  torchtap::hooks::detail::CallTensors slots_;
};

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// The status of a child that runs `body`, which ends by a signal or by `_exit`.
inline int status_of(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

/// A ring in a folder of its own, beside the folder of incidents.
struct Place {
  TemporaryDirectory directory;
  std::string rings = directory / "rings", incidents = directory / "incidents";
};

}  // namespace torchtap_test
