#include "costs.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <set>

#include <torchtap/model/detail/interposed.hpp>
#include <torchtap/model/walk.hpp>

#include "../message.hpp"
#include "agent.hpp"
#include "ending.hpp"
#include "linked.hpp"
#include "ownership.hpp"

namespace torchtap::preload {
namespace {

namespace fs = std::filesystem;
namespace report = views::report;
using torch::nn::Module;
using Lock = std::lock_guard<std::recursive_mutex>;

constexpr std::size_t kMostModels = 16;

std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& arguments) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& argument : arguments) {
    operations::for_each_tensor(argument, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
}

struct Running : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> node_begins(const at::RecordFunction& /*function*/) {
  preload::backward(true);
  return std::make_unique<Running>();
}

void node_ends(const at::RecordFunction& /*function*/, at::ObserverContext* /*running*/) {
  preload::backward(false);
}

/// Ends the step of a thread that ends.
struct ThreadEnd {
  std::function<void()> action;
  ~ThreadEnd() {
    if (action) action();
  }
};
thread_local ThreadEnd thread_end;

report::Options options_for(const std::vector<at::Tensor>& parameters) {
  const bool elsewhere = std::any_of(parameters.begin(), parameters.end(),
                                     [](const at::Tensor& one) { return !one.device().is_cpu(); });
  return report::Options().synchronize(elsewhere);
}

}  // namespace

Costs::Costs(const Config& config) : config_(config), serial_(generation()) {
  report_.process = ::getpid();
  report_.program = program_name();
  if (report_.process == config_.process) tell(false);
}

void Costs::found_root(const Module& root) {
  const Lock lock(mutex_);
  if (done_) return;
  if (open_ && mine() && !in_backward_) set_phase(report::Phase::between);
  let_go_of_the_dead();
  if (const auto known = models_by_module_.find(&root); known != models_by_module_.end()) {
    // A part, or a model whose parameters may have been replaced since.
    if (known->second->ran || known->second->address != &root) return;
  }
  const std::vector<model::ModuleRef> modules = model::walk_modules(const_cast<Module&>(root));
  const auto* calls = model::detail::interposed_calls();
  auto found = std::make_unique<Model>();
  found->address = &root;
  found->life = life_of(modules);
  if (found->life.expired()) return;
  for (const model::ModuleRef& module : without_ownership(modules)) {
    const auto known = models_by_module_.find(&module.module());
    if (known != models_by_module_.end() && known->second->ran) {
      return note(c10::str("the model ", modules.front().type(), " was seen after a part of it had run, ",
                           known->second->type, ": the report is of the part."));
    }
    found->modules.push_back(module);
    if (calls != nullptr && calls->cover(module.module())) {
      found->visible.emplace(&module.module(), module);
    } else if (module.has_forward()) {
      report_.compiled_in.insert(module.type());
    }
  }
  if (found->visible.empty()) return;
  const auto part = [&](const std::unique_ptr<Model>& other) {
    return other->address != nullptr && !other->ran &&
           std::any_of(modules.begin(), modules.end(),
                       [&](const model::ModuleRef& one) { return &one.module() == other->address; });
  };
  models_.erase(std::remove_if(models_.begin(), models_.end(), part), models_.end());
  found->type = modules.front().type();
  add(std::move(found));
}

Costs::Model* Costs::add(std::unique_ptr<Model> found) {
  if (models_.size() == kMostModels) {
    note(c10::str("the program has more than ", kMostModels, " models; further ones (", found->type,
                  ") are not measured."));
    return nullptr;
  }
  Model* added = models_.emplace_back(std::move(found)).get();
  for (const model::ModuleRef& module : added->modules) models_by_module_[&module.module()] = added;
  return added;
}

void Costs::called(Module& module) {
  const Lock lock(mutex_);
  if (done_) return;
  const auto known = models_by_module_.find(&module);
  if (known == models_by_module_.end()) {
    std::string& type = strangers_[typeid(module)];
    if (type.empty()) type = model::pretty_type_name(module);
    return;
  }
  Model& model = *known->second;
  if (model.life.expired()) return let_go_of_the_dead();
  const auto seen = model.visible.find(&module);
  if (seen == model.visible.end()) return;
  join(model, &module, &seen->second);
  pass_.called(module);
}

/// A module, or method, of the model is called: the step of this thread begins, goes on, or is followed by
/// the next one.
void Costs::join(Model& model, const void* first, const model::ModuleRef* module) {
  if (open_ && !mine()) {
    other_thread_waits_ = true;
    return;
  }
  const bool failed = in_backward_ && running_nodes_ == 0;
  if (open_ && (passed_ || failed)) next_step(model, first);
  ++events_;
  if (!open_) begin_step(model, first);
  if (model.running && model.over) end_repeat(model);
  if (!model.running) begin_repeat(model, first, module);
}

void Costs::begin_step(Model& model, const void* first) {
  thread_ = std::this_thread::get_id();
  open_ = true;
  first_called_ = first;
  first_model_ = &model;
  begin_pass();
  scope_ = std::make_unique<operations::Scope>([this](operations::Event& event) {
    if (follows_ && serial_ == generation()) return pass_.follow(event);
    event.run();
  });
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(node_begins, node_ends).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  thread_end.action = [this] {
    const Lock lock(mutex_);
    if (mine()) stop();
  };
}

void Costs::begin_pass() {
  Pass::Modules expected = first_model_->called;  // others may never run
  if (expected.empty()) {
    for (const auto& entry : first_model_->visible) expected.insert(entry.first);
  }
  pass_.begin(std::move(expected));
  passed_ = in_backward_ = false;
  first_calls_ = 0;
  follows_ = !at::GradMode::is_enabled() || calls_before_backward_ == 0;
}

void Costs::end_pass() {
  for (const Module* module : pass_.called_modules()) {
    if (first_model_->visible.count(module) != 0) first_model_->called.insert(module);
  }
}

void Costs::begin_repeat(Model& model, const void* first, const model::ModuleRef* module) {
  if (model.recording.has_value()) {
    model.recording->next();
  } else {
    if (model.report == nullptr) {
      std::vector<at::Tensor> parameters;
      for (const model::ModuleRef& module : model.modules) {
        for (const auto& one : module.module().named_parameters(/*recurse=*/false)) {
          parameters.push_back(one.value());
        }
      }
      model.report = std::make_unique<report::Report>(model.modules, options_for(parameters));
    }
    model.first = first;
    if (module != nullptr) {
      model.first_hook =
          hooks::attach(*module, hooks::Kind::forward_pre, [this, called = &model](hooks::Event& event) {
            if (serial_ == generation()) called_first(*called, inputs_of(event));
          });
    }
    model.recording.emplace(model.report->record());
    step_.push_back(&model);
  }
  model.running = true;
  model.over = false;
  if (std::exchange(model.ran, true)) return;
  order_.push_back(&model);
  ran_ = report_.attached = true;
  tell(false);
  watch(config_.every);
}

void Costs::called_first(Model& model, const std::vector<at::Tensor>& inputs) {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_ || !open_ || !mine() || in_backward_ || model.first != first_called_) return;
    // A training loop's pass ends by its backward, unless it calls the model as for a validation.
    constexpr std::int64_t kMore = 4;
    if (!follows_ && ++first_calls_ > kMore * calls_before_backward_) {
      follows_ = true;
      calls_before_backward_ = 0;
    }
    if (!follows_) return;
    const operations::Unseen unseen;
    if (!pass_.begins_again(inputs)) return;
    next_step(model, first_called_);
    if (!open_) return;
    end_repeat(model);
    begin_repeat(model, first_called_, nullptr);
    pass_.begins_again(inputs);
  });
}

/// The pass is over, and the model is called for the next one. The repeats of other models go on: a backward
/// may still reach them.
void Costs::next_step(Model& model, const void* first) {
  end_pass();
  if (save_wanted_.exchange(false)) {
    end_repeats();
    save();
  }
  if (other_thread_waits_.exchange(false) || (model.recording.has_value() && first != model.first)) {
    return stop();
  }
  set_phase(report::Phase::between);
  for (Model* one : step_) one->over = true;
  first_called_ = first;
  first_model_ = &model;
  begin_pass();
}

void Costs::end_repeat(Model& model) noexcept {
  if (model.recording.has_value()) model.recording->end();
  model.running = false;
}

void Costs::end_repeats() noexcept {
  for (Model* model : step_) end_repeat(*model);
}

void Costs::stop() noexcept {
  end_repeats();
  while (!step_.empty()) {
    step_.back()->recording.reset();
    step_.back()->first_hook.remove();
    step_.back()->first = nullptr;
    step_.pop_back();
  }
  if (!open_) return;
  end_pass();
  at::removeCallback(callback_);
  scope_.reset();
  pass_.forget();
  open_ = in_backward_ = false;
  thread_ = {};
}

void Costs::set_phase(report::Phase phase) {
  passed_ = phase == report::Phase::between;
  for (Model* model : step_) {
    // An earlier pass's model is told of each backward only by what the engine runs of it.
    if (model->running) model->recording->phase(model->over ? report::Phase::between : phase);
  }
}

void Costs::backward(bool begins) {
  running_nodes_ += begins ? 1 : -1;
  if (!begins) return;
  const Lock lock(mutex_);
  ++events_;
  if (!open_ || done_ || std::exchange(in_backward_, true)) return;
  calls_before_backward_ = std::max<std::int64_t>(first_calls_, 1);
  set_phase(report::Phase::backward);
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    const Lock of_engine(mutex_);
    if (!open_ || done_) return;
    in_backward_ = false;
    set_phase(report::Phase::between);
  });
}

c10::IValue Costs::script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                          const std::function<c10::IValue()>& original) {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    Model* model = model_of(method);
    if (model == nullptr) return;
    const void* object = model->object;
    join(*model, object, nullptr);
    if (object == first_called_) called_first(*model, tensors_of(arguments));
  });
  return original();
}

/// The model of a method of TorchScript, as which it is added if it is new; null if there are too many.
Costs::Model* Costs::model_of(const torch::jit::Method& method) {
  const c10::ivalue::Object* object = method.owner()._ivalue().get();
  const auto known = std::find_if(models_.begin(), models_.end(), [&](const std::unique_ptr<Model>& one) {
    return one->object == object && one->method == method.name();
  });
  if (known != models_.end()) return known->get();
  if (left_out_.count(object) != 0) return nullptr;
  const torch::jit::Module module = method.owner();
  auto found = std::make_unique<Model>();
  found->object = object;
  found->method = method.name();
  found->type = model::walk_modules(module, method.name()).front().type();
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& one : module.parameters()) parameters.push_back(one);
  found->report = std::make_unique<report::Report>(module, options_for(parameters), method.name());
  Model* added = add(std::move(found));
  if (added == nullptr) left_out_.insert(object);
  return added;
}

/// Models that the program destroyed: takes what was measured, and frees their parameters.
void Costs::let_go_of_the_dead() {
  for (auto model = models_.begin(); model != models_.end();) {
    Model& one = **model;
    if (one.gone || one.address == nullptr || !one.life.expired()) {
      ++model;
      continue;
    }
    if (one.recording.has_value()) {
      if (!mine()) return;  // its own thread will do it
      stop();
    }
    for (const model::ModuleRef& module : one.modules) {
      const auto known = models_by_module_.find(&module.module());
      if (known != models_by_module_.end() && known->second == &one) models_by_module_.erase(known);
    }
    if (!one.ran) {
      model = models_.erase(model);
      continue;
    }
    one.last = one.report->results();
    one.gone = true;
    one.report.reset();
    one.modules.clear();
    one.visible.clear();
    ++model;
  }
}

void Costs::save() {
  report_.samples = report_.modules = 0;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const Model& model = *order_[i];
    const report::Results results = model.gone ? model.last : model.report->results();
    const std::string file = file_of(i);
    report::save(results, file);
    report_.samples += results.repeats;
    if (i == 0) {
      report_.directory = file;
    } else if (files_ <= i) {
      report_.notes.push_back(c10::str(file, " is the report of another model, ", model.type, "."));
    }
  }
  files_ = order_.size();
  report_.saved_at = std::time(nullptr);
}

/// "insight.json"; of a second model "insight-2.json"; of another process "insight-PID.json".
std::string Costs::file_of(std::size_t number) const {
  const fs::path path = config_.save;
  std::string name = path.stem().string();
  if (report_.process != config_.process) name += "-" + std::to_string(report_.process);
  if (number > 0) name += "-" + std::to_string(number + 1);
  return (path.parent_path() / (name + path.extension().string())).string();
}

void Costs::snapshot() noexcept {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_ || order_.empty()) return;
    if (open_ && !passed_ && std::exchange(events_seen_, events_) != events_) {
      save_wanted_ = true;  // the thread that runs saves after this step
      return;
    }
    // Nothing ran for a whole interval: the pass is over.
    if (open_) set_phase(report::Phase::between);
    end_repeats();
    save();
    tell(false);
  });
}

void Costs::finish() noexcept {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    if (mine()) {
      stop();
    } else {
      end_repeats();
    }
    done_ = true;
    add_strangers();
    try {
      save();
    } catch (const std::exception& error) {
      note("the report could not be saved: " + tools::message_of(error));
    }
    tell(true);
  });
}

/// Names the types of modules that ran in no known model.
void Costs::add_strangers() {
  std::set<std::string>& types = report_.ran_types;
  for (const auto& entry : strangers_) types.insert(entry.second);
  if (types.empty() || order_.empty()) return;  // the launcher says it
  std::string list;
  for (const std::string& type : types) list += (list.empty() ? "" : ", ") + type;
  note(c10::str(
      "not measured, as they belong to no model that the program set to train or eval, or asked for its "
      "parameters: ",
      list, "."));
}

void Costs::note(const std::string& text) {
  const Lock lock(mutex_);
  auto& notes = report_.notes;
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

Costs* Costs::for_child() {
  auto* child = new Costs(config_);
  thread_end.action = nullptr;
  child->guarded([&] {
    if (mine()) stop();
    for (const auto& model : models_) {
      if (model->address == nullptr || model->life.expired()) continue;
      auto known = std::make_unique<Model>();
      known->address = model->address;
      known->life = model->life;
      known->type = model->type;
      known->modules = model->modules;
      known->visible = model->visible;
      known->called = model->called;
      child->add(std::move(known));
    }
  });
  return child;
}

void Costs::tell(bool ended) {
  preload::tell(report_, config_.reports, ended);
}

}  // namespace torchtap::preload
