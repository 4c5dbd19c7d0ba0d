#pragma once

// The inputs of the last forwards, in a mapped file that outlives the process.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/values.hpp>
#include <torchtap/views/monitor/detail/outcome.hpp>

namespace torchtap::views::monitor::detail {

/// A forward as it was kept.
struct KeptForward {
  std::int64_t number = 0;
  std::uint64_t time_ns = 0;
  std::uint32_t thread = 0;
  bool training = false, grad = false, inference = false;
  int threads = 1;                                 // of LibTorch's pool
  at::Tensor random_state;                         // of the CPU's generator, as its `get_state` has it
  std::vector<at::Tensor> inputs;                  // flattened, contiguous; undefined where one was not kept
  std::vector<std::string> why_not;                // of each input that was not kept; else empty
  std::vector<std::vector<std::int64_t>> strides;  // of each input, in elements; empty if it was contiguous
  bool returned = false;
  Outcome outcome;
};

/// Any thread may call any member. In a forked child all do nothing.
class FlightRecorder {
 public:
  /// A ring of `bytes` in a new file in `folder`, for the incidents of `incidents`; folders that are missing
  /// are made. The file has mode 0600 and is locked while this lives. Without `inputs`, no byte of an input
  /// is kept. Throws `c10::Error` if there is too little room or a folder is a symbolic link.
  FlightRecorder(const std::string& folder, std::int64_t bytes, const std::string& incidents,
                 const std::string& model, bool inputs = true);
  /// A ring of `bytes` in `memory`, which has room for `room_for(bytes)`, is zeros, and lives longer.
  FlightRecorder(char* memory, std::int64_t bytes, const std::string& model, bool inputs = true);
  TORCHTAP_API static std::uint64_t room_for(std::int64_t bytes) noexcept;
  /// Removes the file.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// A forward begins in this thread. Allocates nothing for contiguous inputs. False, and counts, if its
  /// inputs take more than half of the ring. Inputs that are not dense on the CPU are named, not kept.
  bool begin(std::int64_t number, const hooks::Tensors& inputs, bool training) noexcept;
  /// It returned. Allocates nothing.
  void end(std::int64_t number, const Outcome& outcome) noexcept;
  /// Keeps a text about a window that ended, of one line.
  void note_window(const std::string& text) noexcept;
  /// The records in the ring now, oldest first. Forwards of other threads continue meanwhile.
  std::vector<KeptForward> forwards() const;
  /// How many forwards were larger than half of the ring.
  std::int64_t skipped() const noexcept;
  const std::string& file() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace torchtap::views::monitor::detail
