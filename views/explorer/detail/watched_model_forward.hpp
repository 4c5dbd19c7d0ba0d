#pragma once

// One forward of a watched model, in the thread that runs it.

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <torchtap/base/split_mix.hpp>
#include <torchtap/hooks/event.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/explorer/detail/data_flow.hpp>
#include <torchtap/views/explorer/detail/graph.hpp>
#include <torchtap/views/explorer/detail/series.hpp>
#include <torchtap/views/watch/calls.hpp>
#include <torchtap/views/watch/column.hpp>
#include <torchtap/views/watch/identity.hpp>

namespace torchtap::views::explorer::detail {

class WatchedModel;

/// Mixes the number of an event into a hash.
inline void mix(std::uint64_t& hash, std::uint64_t event) {
  hash = base::split_mix((hash ^ event) + base::kGolden);
}

/// The tensors of a call.
std::vector<at::Tensor> all(const hooks::Tensors& tensors);

/// Series of one step that get the gradient of one output of a node of autograd. Kept by that node, which may
/// serve several steps: a leaf's node lives as long as something holds it.
struct GradientTargets {
  std::weak_ptr<WatchedModel> watched;
  std::uint64_t serial = 0;  // the watched model's
  bool leaf = false;
  std::mutex mutex;  // of the members below
  std::int64_t step = 0;
  bool arrived = false;                           // a gradient, in this step
  std::shared_ptr<const std::atomic<bool>> runs;  // whether the forward that asks for it runs
  c10::SmallVector<SeriesKey, 2> keys;
};

/// Measurements of tensors during a forward, so that a module's output, which is the input of the next, is
/// read once.
class Measured {
 public:
  /// The values of the tensor as it is now.
  std::shared_ptr<const watch::Column> of(const at::Tensor& tensor);

 private:
  struct One {
    std::int64_t version;
    std::shared_ptr<const watch::Column> column;
  };
  watch::ByTensor<One> known_;
};

struct Forward {
  struct OpenCall {
    std::int32_t module;
    int depth;
    std::int32_t call = -1;                                   // known if recorded or traced
    ska::flat_hash_map<std::int32_t, std::int32_t> counts{};  // of calls inside, by module
    bool missed = false;                                      // it had begun before it could be seen
    std::vector<at::Tensor> last{};                           // if missed: outputs of the last call inside
  };

  Mode mode = Mode::train;
  std::int64_t step = 0;
  std::int64_t began = 0;  // grows with each forward of this thread
  bool counts = false;     // its root's calls, in watch::calls_here
  bool learns = false;     // in training mode, with gradients
  bool recorded = false;   // values
  bool traced = false;     // data flow
  std::vector<OpenCall> open;
  CallSequence pass;
  std::map<std::int32_t, std::int64_t> calls_of;  // of each module so far
  std::shared_ptr<Flow> flow;
  std::unique_ptr<operations::Scope> scope;
  std::shared_ptr<std::atomic<bool>> runs;  // until it ends; null before it begins
  Measured measured;
  std::vector<watch::NodePtr> nodes;  // a leaf's lives as long as anybody holds it

  bool looks() const noexcept { return recorded || traced; }
};

}  // namespace torchtap::views::explorer::detail
