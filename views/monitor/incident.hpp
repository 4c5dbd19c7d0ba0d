#pragma once

/// An incident: a folder with the last inputs of a model, from which its forwards can be run again.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/hooks/values.hpp>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace torchtap::views::monitor {

/// One forward of an incident, and the result of its replay.
struct TORCHTAP_API Replayed {
  std::int64_t forward = 0;                         ///< its number
  std::string inputs;                               ///< "[1,3,224,224] f32"
  std::string outputs;                              ///< "[1,1000] f32", of the replay
  bool returned = true;                             ///< whether it returned when it was recorded
  std::int64_t nan_recorded = 0, inf_recorded = 0;  ///< in the outputs, when it was recorded
  std::int64_t nan = 0, inf = 0;                    ///< in the outputs of the replay
  bool same_bits = false;  ///< whether the outputs have the recorded digest; false if it did not return then
  /// The distance of the sum of the finite outputs from the recorded one, relative to the sum of their
  /// absolute values; NaN if one did not return or if the counts of NaN and infinities differ.
  double difference = 0;
  std::string error;  ///< the replay threw this, or why the forward was not run
};

/// The forwards that are replayed, and callbacks.
struct TORCHTAP_API ReplayOptions {
  std::int64_t from = 0;           ///< least number of a forward
  std::optional<std::int64_t> to;  ///< number of the last one; none: to the end
  /// Called around the last forward, say to search it with a report. By default it is just run.
  std::function<void(const std::function<void()>&)> around_last;
  /// Gets a sentence for each thing that is other than when the incident was recorded, and may change bits:
  /// parameters, version, processor.
  std::function<void(const std::string&)> note;
};

/// Calls a model's forward with the flattened inputs that were recorded, and returns the tensors of its
/// result.
using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// Runs the forwards of an incident with their recorded random state, mode and number of threads (at most 16
/// or as many as there are processors), in order. For a model in training, parameters in the incident are set
/// before the forward that had them, or, if they were read later, before the last one. Restores the caller's
/// state, and the model's parameters and buffers. Inputs have their recorded strides.
///
/// Throws `c10::ValueError` if `incident` is not one, was written by a newer torchtap, is damaged, holds no
/// inputs, or has no forward from `ReplayOptions::from` on. An exception of a forward becomes its
/// `Replayed::error`.
TORCHTAP_API std::vector<Replayed> replay(const std::string& incident, torch::nn::Module& model,
                                          const Forward& forward, const ReplayOptions& options = {});
/// Replays a TorchScript model. Its recorded tensors become the arguments of `method` by their declared
/// types; other arguments have their defaults, because numbers and texts are not recorded. Throws
/// `c10::ValueError` that names the argument if it has none, or if the types do not say how many tensors it
/// had (a dict; two lists): pass a `Forward`.
TORCHTAP_API std::vector<Replayed> replay(const std::string& incident, torch::jit::Module& model,
                                          const ReplayOptions& options = {},
                                          const std::string& method = "forward");
/// Replays a TorchScript model that is called by `forward`.
TORCHTAP_API std::vector<Replayed> replay(const std::string& incident, torch::jit::Module& model,
                                          const Forward& forward, const ReplayOptions& options = {});

namespace detail {

template <std::size_t>
using ReplayedTensor = const at::Tensor&;

template <class Model, class Indices, class = void>
struct ForwardTakes : std::false_type {};
template <class Model, std::size_t... I>
struct ForwardTakes<
    Model, std::index_sequence<I...>,
    std::void_t<decltype(std::declval<Model&>().forward(std::declval<ReplayedTensor<I>>()...))>>
    : std::true_type {};

template <class Model, std::size_t... I>
bool forward_with(Model& model, const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs,
                  std::index_sequence<I...>) {
  if constexpr (ForwardTakes<Model, std::index_sequence<I...>>::value) {
    if (inputs.size() != sizeof...(I)) return false;
    if constexpr (std::is_void_v<decltype(model.forward(inputs[I]...))>) {
      model.forward(inputs[I]...);
    } else {
      auto result = model.forward(inputs[I]...);
      outputs = hooks::tensors_in(result);
    }
    return true;
  } else {
    return false;
  }
}

template <class Model, std::size_t... N>
std::vector<at::Tensor> forward_of(Model& model, const std::vector<at::Tensor>& inputs,
                                   std::index_sequence<N...>) {
  std::vector<at::Tensor> outputs;
  const bool called = (forward_with(model, inputs, outputs, std::make_index_sequence<N>()) || ...);
  TORCH_CHECK_VALUE(called, "views::monitor::replay: the model's forward does not take ", inputs.size(),
                    " tensors; pass a function that calls it with them.");
  return outputs;
}

}  // namespace detail

/// Replays a model of this type, whose forward takes up to eight tensors. Other forwards are called by a
/// function:
///
///     monitor::replay(incident, *model, [&](const std::vector<at::Tensor>& inputs) {
///       return std::vector<at::Tensor>{model->forward(inputs[0], /*scale=*/2)};
///     });
template <class Model, class = std::enable_if_t<std::is_convertible_v<Model*, torch::nn::Module*>>>
std::vector<Replayed> replay(const std::string& incident, Model& model, const ReplayOptions& options = {}) {
  static_assert(!std::is_same_v<Model, torch::nn::Module>,
                "a torch::nn::Module alone has no forward: pass a model of its own type, or a function that "
                "calls it");
  return replay(
      incident, static_cast<torch::nn::Module&>(model),
      [&](const std::vector<at::Tensor>& inputs) {
        return detail::forward_of(model, inputs, std::make_index_sequence<9>());
      },
      options);
}

/// The description of an incident.
struct TORCHTAP_API IncidentSummary {
  std::string folder;         ///< where it lies
  std::string reason;         ///< "nonfinite", "drift", "crash", "requested"
  std::string model;          ///< its name
  std::string created;        ///< in UTC: "2026-11-23T16:05:02Z"
  std::int64_t forwards = 0;  ///< how many it has
  bool inputs = false;        ///< whether it can be replayed
  std::string error;          ///< why it cannot be read; empty if it can
};
/// The incidents in a folder, oldest first. Throws `c10::ValueError` if `incidents` is no folder.
TORCHTAP_API std::vector<IncidentSummary> incidents_in(const std::string& incidents);
/// Whether the folder is an incident.
TORCHTAP_API bool is_incident(const std::string& folder);

/// The rings of which `recover_incidents` makes incidents; it removes the others.
enum class Left {
  any,
  suspicious,  ///< with a forward that did not return, or returned values that are not finite
  none,
};

/// Makes an incident of each ring, or of those that `left` says, that a process left in `incidents` or its
/// ring folder when it was killed, and returns the folders. Rings of living processes, of other users and of
/// newer versions stay; unreadable ones are removed. Throws `c10::ValueError` if `incidents` is no folder,
/// `c10::Error` if an incident cannot be written; its ring stays then.
TORCHTAP_API std::vector<std::string> recover_incidents(const std::string& incidents, std::int64_t keep = 16,
                                                        Left left = Left::any);

}  // namespace torchtap::views::monitor
