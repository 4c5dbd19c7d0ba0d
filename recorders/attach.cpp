// Attaches recorders to modules, and detaches them.
#include <algorithm>
#include <unordered_map>

#include <torchtap/base/error.hpp>
#include <torchtap/model/extend/recognise.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/recorders/detail/attached.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::recorders {

using detail::Record;

namespace {

/// For a recorder of gradients: a hook that throws during the forward if no gradient can arrive
/// (`Record::on_forward`). TorchScript has no values of unknown types.
hooks::Handle watch_forward(const model::ModuleRef& module, const std::shared_ptr<Record>& record) {
  const auto& kind = traits(record->kind());
  if (!kind.gradients || kind.parameters || module.scripted() || module.exported()) return {};
  if (kind.outputs) {
    return hooks::attach(module, hooks::Kind::forward_output,
                         [record](hooks::Event& event) { record->on_forward(event.outputs()); });
  }
  return hooks::attach(module, hooks::Kind::forward_pre,
                       [record](hooks::Event& event) { record->on_forward(event.inputs()); });
}

/// Throws if samples would share memory that an exported model uses again before its forward ends.
void check_capture(const model::ModuleRef& module, const Record& record) {
  if (!module.exported() || module == module.root()) return;
  const RecorderOptions& how = record.options();
  const bool copied = how.reduction() != nullptr || (!how.spool_directory().empty() && !how.memory_budget());
  TORCH_CHECK_VALUE(how.capture() != Capture::alias || copied, record.describe(),
                    ": Capture::alias was asked for, but an exported model uses the memory of a tensor again "
                    "within the same forward, so the samples would hold other values; use Capture::copy.");
}

/// The target of a subrecorder: a module, or one of its parameters.
struct Target {
  model::ModuleRef module;
  storage::EntryId parameter;  // its path is empty for a module
};

/// A path in a model that has a name.
std::string path_in(const std::string& model, const std::string& path) {
  return model.empty() || path.empty() ? model + path : model + "." + path;
}

/// The parameters of the modules, each once, with its further names as aliases.
std::vector<Target> parameters_of(const std::vector<model::ModuleRef>& modules, const std::string& kind,
                                  const std::string& model) {
  std::vector<Target> targets;
  std::unordered_map<const c10::TensorImpl*, std::size_t> known;
  for (const auto& module : modules) {
    TORCH_CHECK_VALUE(!module.exported(), "recorders::", kind, "::attach: \"", module.path(), "\" (",
                      module.type(),
                      ") is a module of an exported model, in which no gradients are computed: AOTInductor "
                      "compiles forward alone. Record gradients on the model that was exported.");
    for (const auto& held : model::held_by(module)) {
      const bool has_gradients = held.tensor.is_floating_point() || held.tensor.is_complex();
      if (held.buffer || !has_gradients) continue;
      const auto [target, is_new] = known.try_emplace(held.tensor.unsafeGetTensorImpl(), targets.size());
      if (is_new) targets.push_back({module, {"", {}, module.type(), kind}});
      storage::EntryId& id = targets[target->second].parameter;
      const auto add = [&](const std::string& path) {
        std::string name = path_in(model, path.empty() ? held.name : path + "." + held.name);
        if (id.path.empty()) {
          id.path = std::move(name);
        } else {
          id.aliases.push_back(std::move(name));
        }
      };
      add(module.path());
      for (const auto& alias : module.aliases()) add(alias);
    }
  }
  TORCH_CHECK_VALUE(!targets.empty() || modules.empty(), "recorders::", kind, "::attach: none of the ",
                    modules.size(),
                    " selected modules holds a parameter itself; select those that do, such as Linear.");
  return targets;
}

/// The name that a parameter has in its module: torch::nn allows no dot in it.
std::string name_in_module(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

}  // namespace

void Recorder::Attached::hook(const model::ModuleRef& module) {
  const auto& record = subrecorder.record_;
  is_its_module = model::extend::recogniser(module);
  if (traits(record->kind()).parameters) {
    const std::string name = name_in_module(record->id().path);
    handle = hooks::attach(module, name, record->hook(module, companions));
    for (const auto& held : model::held_by(module)) {
      if (!held.buffer && held.name == name) record->watch(held.tensor);
    }
    return;
  }
  check_capture(module, *record);
  handle = hooks::attach(
      module, traits(record->kind()).hook, record->hook(module, companions),
      [record](const hooks::Event& event, const std::string& why) { record->on_left_out(event, why); });
  forward = watch_forward(module, record);
}

Recorder& Recorder::attach(const selectors::ModuleView& model, const selectors::Selector& selector,
                           const AttachOptions& options) {
  check_not_moved("attach");
  return attach(selectors::select(model.vector(), selector, /*called=*/!traits(kind_).parameters), options);
}

Recorder& Recorder::module(torch::nn::AnyModule& module, const std::string& name) {
  check_not_moved("module");
  return attach(std::vector<model::ModuleRef>{model::ref(module, name)});
}

Recorder::Attached* Recorder::detached_of(const model::ModuleRef& module, const std::string& path) const {
  const auto found = std::find_if(attached_->begin(), attached_->end(), [&](const auto& one) {
    return one != nullptr && !one->handle.attached() && one->subrecorder.path() == path &&
           one->is_its_module != nullptr && one->is_its_module(module);
  });
  return found == attached_->end() ? nullptr : found->get();
}

Recorder& Recorder::attach(const std::vector<model::ModuleRef>& modules, const AttachOptions& options) {
  check_not_moved("attach");
  const bool parameters = traits(kind_).parameters;
  std::vector<Target> targets;
  if (parameters) {
    targets = parameters_of(modules, kind(), options.name());
  } else {
    hooks::check_reachable(modules);
    for (const auto& module : modules) targets.push_back({module, {}});
  }
  const bool alone = modules.size() == 1;
  hooks::DeferredCompile batch;
  AttachedList added;
  std::vector<std::pair<Attached*, std::unique_ptr<Attached>>> continued;
  struct Withdraw {  // undoes `store_in` unless all were attached
    detail::Store& store;
    std::int64_t count = 0;
    ~Withdraw() {
      if (count > 0) store.withdraw(count);
    }
  } withdraw{*store_};
  for (const auto& [module, parameter] : targets) {
    const std::string path = parameters ? parameter.path : path_in(options.name(), module.path());
    if (Attached* const former = detached_of(module, path); former != nullptr) {
      continued.emplace_back(former, std::make_unique<Attached>(former->subrecorder.record_));
      continued.back().second->hook(module);
      continue;
    }
    storage::EntryId id = parameter;
    if (!parameters) {
      id = {path, {}, module.type(), kind()};
      for (const auto& alias : module.aliases()) id.aliases.push_back(path_in(options.name(), alias));
    }
    auto record = std::make_shared<Record>(kind_, options_, std::move(id), alone);
    if (!parameters) record->watch(module);
    record->store_in(store_);
    ++withdraw.count;
    added.push_back(std::make_unique<Attached>(std::move(record)));
    added.back()->hook(module);
  }
  batch.commit();
  // Last, so that a module that cannot be reached leaves the recorder as it was.
  attached_->reserve(attached_->size() + added.size());
  for (auto& attached : added) attached_->push_back(std::move(attached));
  for (auto& [former, hooked] : continued) former->take_hooks(std::move(*hooked));
  withdraw.count = 0;
  return *this;
}

Recorder& Recorder::replace(std::int64_t index, const model::ModuleRef& module) {
  constexpr std::size_t kMostFormer = 64;
  check_not_moved("replace");
  (*this)[index];  // throws if there is none
  Attached& attached = *(*attached_)[static_cast<std::size_t>(index)];
  hooks::DeferredCompile batch;
  Attached next(attached.subrecorder.record_);
  next.hook(module);
  batch.commit();
  if (traits(kind_).gradients && !traits(kind_).parameters) {
    attached.former.push_back(std::move(attached.handle));
    if (attached.former.size() > kMostFormer) attached.former.pop_front();
  }
  attached.take_hooks(std::move(next));
  return *this;
}

void Recorder::detach() noexcept {
  hooks::DeferredCompile batch;
  for (const auto& attached : attached()) {
    if (attached != nullptr) attached->detach();
  }
}

Scope::Scope(Recorder& recorder) {
  recorder.check_not_moved("Scope");
  attached_ = recorder.attached_;
  for (const auto& one : recorder.attached()) before_.push_back(one != nullptr && one->handle.attached());
}

Scope::~Scope() {
  const auto attached = attached_.lock();
  if (attached == nullptr) return;
  hooks::DeferredCompile batch;
  for (std::size_t i = 0; i < attached->size(); ++i) {
    const bool was_attached = i < before_.size() && before_[i];
    if ((*attached)[i] != nullptr && !was_attached) (*attached)[i]->detach();
  }
}

}  // namespace torchtap::recorders
