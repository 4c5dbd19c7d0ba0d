#pragma once

// From which ports of calls each tensor of a forward was computed, told by the operations as they run.
//
// A tensor has a set of sources for each caller, that is each running call. A call that begins turns an input
// into the one source "input i" inside; a call that ends turns an output into "output j of this call"
// outside. An operation's results have the sources of all its arguments. A write in place reaches every
// tensor that shows the written bytes. No autograd is needed.
//
// An operation that adds to more sources than can be drawn becomes a source itself: each sum of a residual
// stream has all of the blocks before it as sources, so a stream of N blocks would have N² edges.

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <torchtap/operations/event.hpp>
#include <torchtap/views/explorer/detail/edge.hpp>
#include <torchtap/views/watch/facts.hpp>
#include <torchtap/views/watch/identity.hpp>
#include <torchtap/views/watch/region.hpp>

namespace torchtap::views::explorer::detail {

/// One forward of a model. Threads that the forward starts may call `run` at once.
class Flow {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// Makes a call of the `nth` operation of this name inside of a caller, which computed `result`.
  using MakeCall = std::function<std::int32_t(std::int32_t caller, const std::string& operation,
                                              std::int32_t nth, const at::Tensor& result)>;

  /// `held` are the parameters and buffers of the model: they come from nowhere.
  Flow(const Tensors& held, MakeCall make_call);

  /// The call `id` begins with these inputs, inside of the running call. Undefined tensors keep their port.
  void enter(std::int32_t id, const Tensors& inputs);
  /// The innermost call returns `outputs`, or ends without.
  void leave(const Tensors& outputs);
  /// Runs an operation and notes what it computed from which, until `stop` was called.
  void run(operations::Event& event);
  void stop() noexcept { stopped_ = true; }

  const std::set<Edge>& edges() const noexcept { return edges_; }
  /// All calls in the order in which they began.
  const std::vector<std::int32_t>& calls() const noexcept { return calls_; }
  /// Time in `run` outside of the operations.
  std::chrono::nanoseconds own_time() const noexcept { return std::chrono::nanoseconds(own_time_.load()); }

 private:
  using Sources = c10::SmallVector<Port, 4>;  // sorted

  /// The entry of a tensor inside of a caller, from event number `at` on.
  struct Fact {
    std::int32_t caller;
    std::int64_t at;
    Sources sources;
  };
  /// The `at`th event wrote these bytes inside of a caller.
  struct Write {
    std::int32_t caller;
    std::int64_t at;
    Sources sources;
    watch::Region region;
  };
  struct Known {
    c10::SmallVector<Fact, 2> facts;
    std::int32_t maker = -1;  // the call in which an operation made it,
    std::int64_t made = -1;   // and when
  };
  /// Writes to a memory, in order, unless a later one of the same caller covers them.
  using Writes = std::vector<Write>;
  struct Running {
    Sources sources;
    c10::SmallVector<at::Tensor, 2> read, written;
    std::int32_t call = -1;  // of the operation, if it is one
  };

  static void add(Sources& to, const Sources& more);
  static void add(Writes& to, Write write);
  static Sources ports_of(std::int32_t call, const Tensors& tensors, const at::Tensor& tensor);
  std::int32_t caller() const noexcept { return stack_.empty() ? 0 : stack_.back(); }
  bool is_around(std::int32_t call, std::int32_t inner) const;
  const Fact* visible(const Known& known) const;
  std::int64_t since(const at::Tensor& tensor) const;
  bool is_old(const at::Tensor& tensor) const;
  void settle(const at::Tensor& tensor);
  Sources own_sources(const at::Tensor& tensor);
  Sources sources_of(const at::Tensor& tensor);
  Sources carried(const Sources& sources, std::int32_t from);
  Sources of_returned_call(const Known& known);
  Known& known(const at::Tensor& tensor);
  void define(const at::Tensor& tensor, Fact fact);
  void define(const at::Tensor& tensor, std::int32_t caller, const Sources& sources) {
    define(tensor, {caller, ++events_, sources});
  }
  void write(const at::Tensor& tensor, std::int32_t caller, const Sources& sources);
  void tell_writes(std::int32_t call, const Tensors& outputs);
  void before(operations::Event& event, Running& running);
  Sources drawable(Sources sources, operations::Event& event, Running& running, const at::Tensor& result);
  Fact computed(const at::Tensor& result, const Running& running);
  void after(operations::Event& event, Running& running);

  const MakeCall make_call_;
  std::mutex mutex_;
  watch::PerOperation<std::vector<bool>> reads_;  // arguments whose values are read
  std::set<Edge> edges_;
  std::vector<std::int32_t> calls_, stack_;
  std::map<std::pair<std::int32_t, std::string>, std::int32_t> operations_;  // that are calls, by caller
  ska::flat_hash_map<std::int32_t, std::int32_t> parents_;
  watch::ByTensor<Known> tensors_;
  watch::ByMemory<Writes> memories_;                                    // of these
  ska::flat_hash_map<std::int32_t, std::set<const void*>> written_in_;  // memories, by call
  std::int64_t events_ = 0;
  std::atomic<std::int64_t> own_time_{0};  // nanoseconds
  std::atomic<bool> stopped_{false};
};

}  // namespace torchtap::views::explorer::detail
