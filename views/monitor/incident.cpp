// Runs the forwards of incidents again.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/random_state.hpp>
#include <torchtap/views/monitor/detail/script_arguments.hpp>
#include <torchtap/views/monitor/incident.hpp>

namespace torchtap::views::monitor {
namespace {

using detail::KeptForward;
using detail::ReadIncident;

/// "f32" for float32.
std::string short_dtype(at::ScalarType type) {
  std::string text = base::dtype_text(type);
  for (const auto& [prefix, letter] : {std::pair<const char*, const char*>{"float", "f"},
                                       {"bfloat", "bf"},
                                       {"int", "i"},
                                       {"uint", "u"},
                                       {"complex", "c"}}) {
    const std::string all = prefix;
    if (text.size() > all.size() && text.compare(0, all.size(), all) == 0 &&
        text.find_first_not_of("0123456789", all.size()) == std::string::npos)
      return letter + text.substr(all.size());
  }
  return text;
}

std::string described(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    if (!text.empty()) text += ", ";
    if (!tensor.defined()) {
      text += "none";
      continue;
    }
    std::string sizes;
    for (const std::int64_t size : tensor.sizes()) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    text += "[" + sizes + "] " + short_dtype(tensor.scalar_type());
  }
  return text.empty() ? "none" : text;
}

/// The tensor with the strides it had, which may decide what kernels compute.
at::Tensor with_strides(const at::Tensor& tensor, const std::vector<std::int64_t>& strides) {
  if (!tensor.defined() || strides.empty() || tensor.numel() == 0 ||
      static_cast<std::int64_t>(strides.size()) != tensor.dim())
    return tensor;
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  at::Tensor part = tensor;
  std::int64_t extent = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::int64_t reach = 0;
    if (strides[i] < 0 || __builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(extent, reach, &extent))
      return tensor;
    if (strides[i] == 0) {  // expanded
      sizes[i] = 1;
      part = part.narrow(static_cast<std::int64_t>(i), 0, 1);
    }
  }
  constexpr std::int64_t kSparsest = 16;  // a few elements of a large tensor are not worth its memory
  if (extent / kSparsest > tensor.numel()) return tensor;
  try {
    const at::Tensor strided = at::empty_strided(sizes, strides, tensor.options());
    strided.copy_(part);
    return strided.expand(tensor.sizes());
  } catch (const c10::Error&) {  // elements that overlap otherwise
    return tensor;
  }
}

bool training_of(const model::ModuleRef& module, bool otherwise) {
  if (!module.scripted()) return module.module().is_training();
  const torch::jit::Module& script = module.script();
  return script.hasattr("training") ? script.attr("training").toBool() : otherwise;
}

void set_training(const model::ModuleRef& module, bool on) {
  if (!module.scripted()) {
    module.module().train(on);
  } else {
    torch::jit::Module script = module.script();
    script.train(on);
  }
}

std::string name_in(const model::ModuleRef& module, const model::Held& held) {
  return base::utf8_text(module.path().empty() ? held.name : module.path() + "." + held.name);
}

/// The values before a replay changed them.
class Restored {
 public:
  explicit Restored(const std::vector<model::ModuleRef>& modules, bool parameters) : modules_(modules) {
    const base::RecordingMode quiet;
    detail::RandomState state;
    detail::take_random_state(state);
    random_ = detail::state_tensor(state);
    for (const model::ModuleRef& module : modules) {
      training_.push_back(training_of(module, false));
      for (const model::Held& held : model::held_by(module))
        if (held.buffer || parameters) held_.emplace_back(held.tensor, held.tensor.detach().clone());
    }
  }
  ~Restored() {
    at::set_num_threads(threads_);
    try {
      detail::set_random_state(random_);
      // From the root on: a module sets those inside of it, too, which come later.
      for (std::size_t i = 0; i < modules_.size(); ++i)
        if (training_of(modules_[i], training_[i]) != training_[i]) set_training(modules_[i], training_[i]);
      const c10::InferenceMode any_tensor;
      for (auto& [tensor, before] : held_) tensor.detach().copy_(before);
    } catch (const std::exception&) {
    }
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  const std::vector<model::ModuleRef>& modules_;
  int threads_ = at::get_num_threads();
  at::Tensor random_;
  std::vector<bool> training_;
  std::vector<std::pair<at::Tensor, at::Tensor>> held_;
};

/// Puts the parameters and buffers of an incident in place of the model's.
void load_parameters(const std::string& file, const std::vector<model::ModuleRef>& modules) {
  const core::Value value = storage::load_value(file);
  std::map<std::string, at::Tensor> recorded;
  for (const auto& [name, tensor] : value.dict()) recorded[name] = tensor.tensor();
  const c10::InferenceMode any_tensor;
  for (const model::ModuleRef& module : modules) {
    for (const model::Held& held : model::held_by(module)) {
      const auto found = recorded.find(name_in(module, held));
      TORCH_CHECK_VALUE(found != recorded.end() && found->second.sizes() == held.tensor.sizes(),
                        "views::monitor::replay: this is another model than the incident's: \"", file, "\" ",
                        found == recorded.end() ? "has no" : "has another shape of", " \"",
                        name_in(module, held), "\".");
      held.tensor.detach().copy_(found->second);
    }
  }
}

void note_differences(const ReadIncident& incident, const std::vector<model::ModuleRef>& modules,
                      const ReplayOptions& options) {
  if (!options.note) return;
  if (!incident.type.empty() && modules.front().type() != incident.type)
    options.note(c10::str("the model is a ", modules.front().type(), "; a ", incident.type, " was recorded"));
  if (!incident.parameters.empty() && incident.parameters_file.empty() &&
      detail::digest_of_parameters(modules) != incident.parameters)
    options.note("the model's parameters are others than those recorded");
  if (!incident.parameters_file.empty() && incident.parameters_of < 0)
    options.note(
        "the incident's parameters were read behind its last forward, while the model was in training, so "
        "that bits may differ");
  if (!incident.libtorch.empty() && incident.libtorch != TORCH_VERSION)
    options.note(c10::str("this is LibTorch ", TORCH_VERSION, "; ", incident.libtorch, " was recorded"));
  if (!incident.cpu.empty() && incident.cpu != detail::cpu_capability())
    options.note(c10::str("this processor runs kernels for ", detail::cpu_capability(), "; those for ",
                          incident.cpu, " were recorded"));
}

/// More of them take a machine with few processors minutes for a forward.
int most_threads() {
  return std::max(16, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Why the inputs cannot be given again; empty if they can.
std::string lack_of(const KeptForward& forward) {
  for (std::size_t i = 0; i < forward.inputs.size(); ++i)
    if (!forward.inputs[i].defined() && forward.why_not[i] != "undefined")
      return c10::str("input ", i, " was not kept: ",
                      forward.why_not[i].empty() ? "it is not in the folder" : forward.why_not[i]);
  return {};
}

Replayed run_again(const KeptForward& kept, const std::vector<model::ModuleRef>& modules,
                   const Forward& forward, const ReplayOptions& options, bool last) {
  Replayed replayed;
  replayed.forward = kept.number;
  replayed.inputs = described(kept.inputs);
  replayed.returned = kept.returned;
  replayed.nan_recorded = kept.outcome.nan;
  replayed.inf_recorded = kept.outcome.inf;
  replayed.difference = std::nan("");
  replayed.error = lack_of(kept);
  if (!replayed.error.empty()) return replayed;
  std::vector<at::Tensor> inputs, outputs;
  for (std::size_t i = 0; i < kept.inputs.size(); ++i)
    inputs.push_back(with_strides(kept.inputs[i], kept.strides[i]));
  if (training_of(modules.front(), kept.training) != kept.training)
    set_training(modules.front(), kept.training);
  at::set_num_threads(std::min(kept.threads, most_threads()));
  if (kept.random_state.defined()) detail::set_random_state(kept.random_state);
  try {
    const c10::InferenceMode inference(kept.inference);
    const c10::AutoGradMode grad(kept.grad);
    const auto run = [&] { outputs = forward(inputs); };
    if (last && options.around_last) {
      options.around_last(run);
    } else {
      run();
    }
  } catch (const c10::Error& error) {
    replayed.error = error.what_without_backtrace();
  } catch (const std::exception& error) {
    replayed.error = error.what();
  }
  if (!replayed.error.empty()) return replayed;
  const detail::Outcome outcome = detail::outcome_of(outputs);
  replayed.outputs = described(outputs);
  replayed.nan = outcome.nan;
  replayed.inf = outcome.inf;
  replayed.same_bits = kept.returned && outcome.digest == kept.outcome.digest;
  if (kept.returned && outcome.nan == kept.outcome.nan && outcome.inf == kept.outcome.inf) {
    const double off = std::abs(outcome.sum - kept.outcome.sum);
    replayed.difference = off == 0 ? 0 : off / kept.outcome.magnitude;
  }
  return replayed;
}

std::vector<Replayed> replay_all(const std::string& folder, const std::vector<model::ModuleRef>& modules,
                                 const Forward& forward, const ReplayOptions& options) {
  const ReadIncident incident = detail::read_incident(folder);
  std::vector<const KeptForward*> forwards;
  bool any = false;
  for (const KeptForward& kept : incident.forwards) {
    if (kept.number < options.from || kept.number > options.to.value_or(kept.number)) continue;
    forwards.push_back(&kept);
    any = any || lack_of(kept).empty();
  }
  TORCH_CHECK_VALUE(!incident.forwards.empty(), "views::monitor::replay: \"", folder, "\" holds no forward.");
  TORCH_CHECK_VALUE(!forwards.empty(), "views::monitor::replay: \"", folder, "\" holds no forward from ",
                    options.from, " on", options.to.has_value() ? c10::str(" up to ", *options.to) : "",
                    "; its last one is ", incident.forwards.back().number, ".");
  TORCH_CHECK_VALUE(any, "views::monitor::replay: \"", folder,
                    "\" holds no inputs, so nothing can be run: ", lack_of(*forwards.back()), ".");
  note_differences(incident, modules, options);
  const auto most = std::max_element(forwards.begin(), forwards.end(),
                                     [](const auto* a, const auto* b) { return a->threads < b->threads; });
  if (options.note && (*most)->threads > most_threads())
    options.note(c10::str("it was recorded with ", (*most)->threads, " threads; this machine takes ",
                          most_threads(), ", so that bits may differ"));
  const Restored restored(modules, !incident.parameters_file.empty());
  std::vector<Replayed> all;
  for (const KeptForward* kept : forwards) {
    if (!incident.parameters_file.empty() &&
        (kept->number == incident.parameters_of || (incident.parameters_of < 0 && kept == forwards.back())))
      load_parameters(incident.parameters_file, modules);
    all.push_back(run_again(*kept, modules, forward, options, kept == forwards.back()));
  }
  return all;
}

}  // namespace

std::vector<Replayed> replay(const std::string& incident, torch::nn::Module& model, const Forward& forward,
                             const ReplayOptions& options) {
  return replay_all(incident, model::walk_modules(model), forward, options);
}

std::vector<Replayed> replay(const std::string& incident, torch::jit::Module& model, const Forward& forward,
                             const ReplayOptions& options) {
  return replay_all(incident, model::walk_modules(model), forward, options);
}

std::vector<Replayed> replay(const std::string& incident, torch::jit::Module& model,
                             const ReplayOptions& options, const std::string& method) {
  TORCH_CHECK_VALUE(model.find_method(method).has_value(),
                    "views::monitor::replay: the model has no method \"", method, "\".");
  return replay_all(
      incident, model::walk_modules(model, method),
      [&](const std::vector<at::Tensor>& inputs) {
        // Each time anew: hooks, which a search attaches, replace it.
        const torch::jit::Method called = model.get_method(method);
        c10::IValue result = called(detail::script_arguments(called.function().getSchema(), inputs));
        return hooks::tensors_in(result);
      },
      options);
}

bool is_incident(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(folder + "/incident.json", error);
}

std::vector<IncidentSummary> incidents_in(const std::string& incidents) {
  std::error_code error;
  TORCH_CHECK_VALUE(std::filesystem::is_directory(incidents, error), "views::monitor::incidents_in: \"",
                    incidents, "\" is no folder.");
  std::vector<IncidentSummary> all;
  for (const auto& entry : std::filesystem::directory_iterator(incidents, error)) {
    if (!detail::is_incident_name(entry.path().filename().string())) continue;
    IncidentSummary& one = all.emplace_back();
    one.folder = entry.path().string();
    try {
      const ReadIncident incident = detail::read_incident(one.folder, /*tensors=*/false);
      one.reason = incident.reason;
      one.model = incident.model;
      one.created = incident.created;
      one.forwards = static_cast<std::int64_t>(incident.forwards.size());
      one.inputs = incident.inputs;
    } catch (const c10::Error& bad) {
      one.error = bad.what_without_backtrace();
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.folder < b.folder; });
  return all;
}

}  // namespace torchtap::views::monitor
