// Rounds the activations of a model by hooks, and its weights for as long as a guard lives.
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <map>
#include <mutex>
#include <set>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/quantization/fake_quantize.hpp>

namespace torchtap::quantization {
namespace detail {
namespace {

/// The weights that are rounded now, in the whole program: if one was rounded twice and the first guard ended
/// first, the second would bring the rounded values back.
std::mutex rounded_mutex;
std::set<const void*>& rounded_now() {
  static auto* const all = new std::set<const void*>;  // outlives guards in static variables
  return *all;
}

}  // namespace

/// A weight that holds other values for a while. Modules and optimizers keep the parameter's tensor.
class RoundedWeight {
 public:
  RoundedWeight(at::Tensor weight, Dtype dtype, std::int64_t axis)
      : weight_(std::move(weight)), original_(weight_.variable_data()) {
    const base::RecordingMode quiet;
    const c10::InferenceMode like(weight_.is_inference());  // what `rounded` has to be, too
    const at::Tensor rounded = weight_parameters(original_, dtype, axis).apply(original_);
    const std::lock_guard lock(rounded_mutex);
    TORCH_CHECK_VALUE(
        rounded_now().insert(weight_.unsafeGetTensorImpl()).second,
        "quantization::fake_quantize: a weight is rounded by another FakeQuantized already; remove() "
        "that first.");
    put(rounded);
  }
  RoundedWeight(const RoundedWeight&) = delete;
  RoundedWeight& operator=(const RoundedWeight&) = delete;
  ~RoundedWeight() {
    const base::RecordingMode quiet;
    const std::lock_guard lock(rounded_mutex);
    rounded_now().erase(weight_.unsafeGetTensorImpl());
    try {
      put(original_);
    } catch (const std::exception&) {  // the program made a tensor of another kind of it, which then stays
    }
  }

 private:
  void put(const at::Tensor& values) {
    weight_.set_data(values);
    // A graph that was built with the former values would go backward with these; now LibTorch throws
    // instead.
    if (!weight_.is_inference()) weight_.unsafeGetTensorImpl()->bump_version();
  }

  at::Tensor weight_;
  const at::Tensor original_;
};

}  // namespace detail

struct FakeQuantized::State {
  std::vector<hooks::Handle> hooks;
  std::vector<std::unique_ptr<detail::RoundedWeight>> weights;

  ~State() {
    const hooks::DeferredCompile batch;
    hooks.clear();
  }
};

FakeQuantized::FakeQuantized() noexcept = default;
FakeQuantized::FakeQuantized(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
FakeQuantized::FakeQuantized(FakeQuantized&&) noexcept = default;
FakeQuantized& FakeQuantized::operator=(FakeQuantized&&) noexcept = default;
FakeQuantized::~FakeQuantized() = default;

void FakeQuantized::remove() noexcept {
  state_.reset();
}

std::int64_t FakeQuantized::activations() const noexcept {
  return state_ == nullptr ? 0 : static_cast<std::int64_t>(state_->hooks.size());
}

std::int64_t FakeQuantized::weights() const noexcept {
  return state_ == nullptr ? 0 : static_cast<std::int64_t>(state_->weights.size());
}

FakeQuantized fake_quantize(const selectors::ModuleView& model, const Calibration& calibration) {
  const std::vector<model::ModuleRef>& modules = model.vector();
  std::map<std::string, const model::ModuleRef*> by_path;
  for (const auto& module : modules) {
    by_path.emplace(module.path(), &module);
    for (const auto& alias : module.aliases()) by_path.emplace(alias, &module);
  }
  std::set<std::string> missing;
  std::vector<model::ModuleRef> needed;
  for (const QuantizedTensor& tensor : calibration) {
    const auto found = by_path.find(tensor.path);
    found == by_path.end() ? void(missing.insert(tensor.path)) : needed.push_back(*found->second);
  }
  TORCH_CHECK_VALUE(missing.empty(), "quantization::fake_quantize: the calibration has ",
                    base::quoted({missing.begin(), missing.end()}), ", which the model lacks; it has ",
                    modules.size(), " modules. Use the model that was recorded, or one with the same paths.");
  hooks::check_reachable(needed);

  hooks::DeferredCompile batch;
  auto state = std::make_unique<FakeQuantized::State>();
  std::set<const void*> seen;
  auto module = needed.begin();
  for (const QuantizedTensor& tensor : calibration) {
    const auto round = [slot = tensor.slot, parameters = tensor.parameters](hooks::Tensors& tensors) {
      if (at::Tensor& value = tensors[slot]; value.defined()) value = parameters.apply(value);
    };
    const auto rounds = tensor.input
                            ? hooks::Callback([round](hooks::Event& event) { round(event.inputs()); })
                            : [round](hooks::Event& event) { round(event.outputs()); };
    state->hooks.push_back(hooks::attach(
        *module, tensor.input ? hooks::Kind::forward_pre : hooks::Kind::forward_output, rounds));
    const bool transposed = module->type().rfind("ConvTranspose", 0) == 0;
    for (const auto& [name, weight, buffer] : model::held_by(*module)) {
      if (!tensor.weights || buffer || weight.dim() < 2 || !weight.is_floating_point()) continue;
      if (!seen.insert(weight.unsafeGetTensorImpl()).second) continue;  // several modules share it
      try {
        const std::int64_t axis = transposed && name == "weight" ? 1 : 0;
        state->weights.push_back(std::make_unique<detail::RoundedWeight>(weight, *tensor.weights, axis));
      } catch (c10::Error& error) {
        error.add_context(
            c10::str("while rounding the ", name, " of \"", tensor.path, "\" (", tensor.type, ")"));
        throw;
      }
    }
    ++module;
  }
  batch.commit();
  return FakeQuantized(std::move(state));
}

}  // namespace torchtap::quantization
