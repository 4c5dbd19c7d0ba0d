// Models of a program that is not rebuilt, as runs of an explorer.
#include "explore.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <torchtap/model/walk.hpp>

#include "../message.hpp"
#include "agent.hpp"
#include "announcements.hpp"
#include "ending.hpp"
#include "explore_threads.hpp"
#include "linked.hpp"
#include "ownership.hpp"

namespace torchtap::preload {
namespace {

namespace fs = std::filesystem;
namespace explorer = views::explorer;
using torch::nn::Module;
using Lock = std::lock_guard<std::recursive_mutex>;

constexpr std::size_t kMostModels = 16;

}  // namespace

Explore::Explore(const Config& config) : config_(config), serial_(generation()) {
  report_.process = ::getpid();
  report_.program = program_name();
  if (report_.process == config_.process && !read_report(config_.reports, report_.process).attached)
    tell(false);
}

void Explore::found_root(const Module& root) {
  const Lock lock(mutex_);
  if (done_) return;
  if (Thread* const thread = Thread::here(); thread != nullptr) close(*thread, 0);
  let_go_of_the_dead();
  if (const auto known = models_by_module_.find(&root); known != models_by_module_.end()) {
    // A part, or a model whose parameters may have been replaced since.
    if (known->second->session != nullptr || known->second->address != &root) return;
  }
  const std::vector<model::ModuleRef> modules = model::walk_modules(const_cast<Module&>(root));
  auto found = std::make_unique<Model>();
  found->address = &root;
  found->type = modules.front().type();
  found->life = life_of(modules);
  if (found->life.expired()) return;
  for (const model::ModuleRef& module : without_ownership(modules)) {
    const auto known = models_by_module_.find(&module.module());
    if (known != models_by_module_.end() && known->second->session != nullptr) {
      return note(c10::str("the model ", found->type, " was seen after a part of it had run, ",
                           known->second->type, ": the part is shown."));
    }
    found->modules.push_back(module);
    if (module.has_forward() && module.reachable()) {
      found->visible.insert(&module.module());
    } else if (module.has_forward()) {
      report_.compiled_in.insert(module.type());
      if (found->modules.size() > 1) hidden_.insert(module.type());
    }
  }
  if (found->visible.empty()) return;
  const auto part = [&](const std::unique_ptr<Model>& other) {
    return other->address != nullptr && other->session == nullptr &&
           std::any_of(modules.begin(), modules.end(),
                       [&](const model::ModuleRef& one) { return &one.module() == other->address; });
  };
  models_.erase(std::remove_if(models_.begin(), models_.end(), part), models_.end());
  add(std::move(found));
}

Explore::Model* Explore::add(std::unique_ptr<Model> found) {
  if (models_.size() == kMostModels) {
    note(c10::str("the program has more than ", kMostModels, " models; further ones (", found->type,
                  ") are not shown."));
    return nullptr;
  }
  Model* added = models_.emplace_back(std::move(found)).get();
  for (const model::ModuleRef& module : added->modules) models_by_module_[&module.module()] = added;
  return added;
}

void Explore::called(Module& module) {
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
  if (model.session == nullptr && model.visible.count(&module) != 0) begin(model);
}

/// The model runs for the first time.
void Explore::begin(Model& model) {
  if (!open_explorer()) return;
  const auto before_call = [this, serial = serial_, raw = &model](const Module& module,
                                                                  const hooks::Event& call) {
    if (serial != generation()) return;
    const Lock lock(mutex_);
    if (!done_ && raw->session != nullptr && raw->session->hides_root()) before(*raw, module, call);
  };
  model.session = explorer_->group().watch(model.modules, {}, "", before_call);
}

/// False if there is nobody to show anything to.
bool Explore::open_explorer() {
  if (explorer_ != nullptr) return true;
  if (done_) return false;
  const auto give_up = [this](const std::exception& error) {
    note("nothing is shown: " + tools::message_of(error));
    done_ = true;
    tell(true);
    return false;
  };
  explorer::Options options;
  options.name(report_.program).on_error([this](const std::string& text) { note(text); });
  report_.directory = config_.save.empty() ? "" : directory();
  std::unique_ptr<explorer::Explorer> opened;
  try {
    opened = std::make_unique<explorer::Explorer>(options.save(report_.directory));
  } catch (const std::exception& error) {
    report_.directory.clear();
    return give_up(error);
  }
  const bool itself = report_.process == config_.process;
  try {
    const std::string url = opened->serve(explorer::ServeOptions().port(itself ? config_.port : 0));
    announce(config_.reports, report_.process,
             itself ? url : c10::str("process ", report_.process, " (", report_.program, "): ", url));
  } catch (const std::exception& error) {
    if (config_.save.empty()) return give_up(error);
    announce(config_.reports, report_.process,
             "there is no page, but the run is saved: " + tools::message_of(error));
  }
  explorer_ = std::move(opened);
  ran_ = report_.attached = true;
  tell(false);
  watch(0);
  return true;
}

/// "run"; of another process, or of the program that this one became by exec, "run-PID".
std::string Explore::directory() {
  const Report earlier = read_report(config_.reports, report_.process);
  const bool became_another = earlier.attached && !earlier.ended;
  if (became_another) {
    report_.notes.push_back("the process became another program (exec); what it had recorded before is in " +
                            earlier.directory + ".");
  }
  if (report_.process == config_.process && !became_another) return config_.save;
  const std::string base = config_.save + "-" + std::to_string(report_.process);
  std::string directory = base;
  for (int i = 2; fs::exists(directory); ++i) directory = base + "-" + std::to_string(i);
  return directory;
}

c10::IValue Explore::script(const torch::jit::Method& method, const std::vector<c10::IValue>& /*arguments*/,
                            const std::function<c10::IValue()>& original) {
  guarded([&] {
    const Lock lock(mutex_);
    if (!done_) model_of(method);
  });
  return original();
}

/// The model of a method of TorchScript, which is watched from now on if it is new; null if there are too
/// many.
Explore::Model* Explore::model_of(const torch::jit::Method& method) {
  const c10::ivalue::Object* object = method.owner()._ivalue().get();
  const auto known = std::find_if(models_.begin(), models_.end(), [&](const std::unique_ptr<Model>& one) {
    return one->object == object && one->method == method.name();
  });
  if (known != models_.end()) return known->get();
  if (left_out_.count(object) != 0 || !open_explorer()) return nullptr;
  const std::vector<model::ModuleRef> modules = model::walk_modules(method.owner(), method.name());
  auto found = std::make_unique<Model>();
  found->object = object;
  found->method = method.name();
  found->type = modules.front().type();
  Model* const added = add(std::move(found));
  if (added == nullptr) {
    left_out_.insert(object);
    return nullptr;
  }
  added->session = explorer_->group().watch(modules, {}, "");
  return added;
}

/// Models that the program destroyed: their runs are finished, and their parameters freed.
void Explore::let_go_of_the_dead() {
  for (auto model = models_.begin(); model != models_.end();) {
    Model& one = **model;
    if (one.address == nullptr || !one.life.expired()) {
      ++model;
      continue;
    }
    for (const model::ModuleRef& module : one.modules) {
      const auto known = models_by_module_.find(&module.module());
      if (known != models_by_module_.end() && known->second == &one) models_by_module_.erase(known);
    }
    one.address = nullptr;
    one.modules.clear();
    one.visible.clear();
    if (one.session == nullptr) {
      model = models_.erase(model);
      continue;
    }
    if (Thread* const thread = Thread::here(); thread != nullptr) close(*thread, 0);
    one.session->let_go();
    ++model;
  }
}

void Explore::note(const std::string& text) {
  const Lock lock(mutex_);
  auto& notes = report_.notes;
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

/// What could not be seen.
void Explore::add_notes() {
  const auto list = [](const std::set<std::string>& types) {
    std::string text;
    for (const std::string& type : types) text += (text.empty() ? "" : ", ") + type;
    return text;
  };
  std::set<std::string>& ran = report_.ran_types;
  for (const auto& entry : strangers_) ran.insert(entry.second);
  if (explorer_ == nullptr) return;  // the launcher says it
  if (!ran.empty()) {
    note(
        "not shown, as they belong to no model that the program set to train or eval, or asked for its "
        "parameters: " +
        list(ran) + ".");
  }
  if (!hidden_.empty())
    note("not shown, as their forward is compiled into the program: " + list(hidden_) + ".");
}

void Explore::finish() noexcept {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    if (Thread* const thread = Thread::here(); thread != nullptr) close(*thread, 0);
    done_ = true;
    add_notes();
    for (const auto& model : models_) {
      if (model->session == nullptr) continue;
      ++report_.modules;
      report_.samples += model->session->step() + 1;
      model->session.reset();
    }
    explorer_.reset();
    tell(true);
  });
}

Explore* Explore::for_child() {
  auto* child = new Explore(config_);
  child->guarded([&] {
    if (explorer_ != nullptr) explorer_->group().leave_to_parent();
    if (Thread* const thread = Thread::here(); thread != nullptr) thread->leave_to_parent();
    for (const auto& model : models_) {
      if (model->address == nullptr || model->life.expired()) continue;
      auto known = std::make_unique<Model>();
      known->type = model->type;
      known->address = model->address;
      known->life = model->life;
      known->modules = model->modules;
      known->visible = model->visible;
      known->called = model->called;
      known->calls_before_backward = model->calls_before_backward;
      child->add(std::move(known));
    }
    child->hidden_ = hidden_;
  });
  return child;
}

}  // namespace torchtap::preload
