// Models of a program that is not rebuilt, each with a monitor.
#include "monitor_mode.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <torchtap/model/walk.hpp>
#include <torchtap/views/monitor/reference.hpp>

#include "agent.hpp"
#include "linked_libraries.hpp"
#include "process_end.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

using torch::nn::Module;
using Lock = std::lock_guard<std::recursive_mutex>;

}  // namespace

MonitorMode::MonitorMode(const Config& config)
    : config_(config),
      models_({[] { return std::make_shared<Model>(); },
               [this](const model::ModuleRef& module) {
                 if (!module.has_forward() || module.reachable()) return module.has_forward();
                 report_.compiled_in.insert(module.type());
                 if (!module.path().empty()) hidden_.insert(module.type());
                 return false;
               },
               [this](const std::string& text) { note(text); }, "watched"}) {
  report_.process = ::getpid();
  report_.program = program_name();
  if (report_.process == config_.process && !read_report(config_.reports, report_.process).attached)
    tell(false);
}

void MonitorMode::found_root(const Module& root) {
  const Lock lock(mutex_);
  if (done_) return;
  let_go_of_the_dead();
  models_.found(root);
}

void MonitorMode::called(Module& module) {
  const Lock lock(mutex_);
  if (done_) return;
  FoundModel* const model = models_.of(module);
  if (model == nullptr) return let_go_of_the_dead();
  if (!model->ran && model->visible.count(&module) != 0) begin(static_cast<Model&>(*model), model->modules);
}

c10::IValue MonitorMode::script(const torch::jit::Method& method,
                                const std::vector<c10::IValue>& /*arguments*/,
                                const std::function<c10::IValue()>& original) {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    FoundModel* const model = models_.of(method);
    if (model == nullptr || model->ran) return;
    begin(static_cast<Model&>(*model), model::walk_modules(method.owner(), method.name()));
  });
  return original();
}

/// The model runs for the first time. A model that cannot be watched is ignored from then on.
void MonitorMode::begin(Model& model, const std::vector<model::ModuleRef>& modules) {
  model.ran = report_.attached = true;
  if (report_.directory.empty()) report_.directory = own_place(report_, config_);
  std::string name = model.type;
  if (!model.method.empty() && model.method != "forward") name += "." + model.method;
  if (const std::size_t others = names_[name]++; others != 0) name += "-" + std::to_string(others + 1);
  const bool learns = config_.mode == "learn";
  views::monitor::MonitorOptions options;
  options.model(name);
  if (learns) {
    options.learn(beside(report_.directory, watched_));
  } else {
    options.incidents(report_.directory)
        .rules(rules::Rules::parse(config_.rules))
        .cost(config_.cost)
        .metrics_file(beside(config_.metrics, watched_))
        .tensorboard(beside(config_.tensorboard, watched_));
  }
  if (!learns) model.reference = reference_for(modules);
  try {
    if (learns) check_still_free(beside(report_.directory, watched_), config_.overwrite);
    model.monitor.emplace(modules, model.reference, std::move(options));
    model.monitor->on_alarm([this](const views::monitor::Alarm& alarm) { alarms_ += alarm.raised ? 1 : 0; });
  } catch (const std::exception& error) {
    report_.lost = report_.lost || learns;
    return note("the model " + name + " is not watched: " + tools::message_of(error));
  }
  if (learns && watched_ != 0) {
    note(beside(report_.directory, watched_) + " is the reference of another model, " + name + ".");
  }
  ++watched_;
  ++report_.modules;
  tell(false);
  if (!ran_.exchange(true)) watch(0);
}

/// The reference that was learned of this model: of those whose modules have the paths and types of most of
/// its own, the first that no other living model is compared with.
std::string MonitorMode::reference_for(const std::vector<model::ModuleRef>& modules) {
  if (config_.reference.empty()) return {};
  if (!learned_.has_value()) {
    learned_.emplace();
    std::string place = config_.reference;
    for (int number = 2; std::filesystem::exists(place); ++number) {
      Learned& learned = learned_->emplace_back();
      learned.place = place;
      const auto reference = views::monitor::Reference::load(place);
      for (const auto& tensor : reference.tensors()) {
        learned.modules.emplace(tensor.path, tensor.type);
      }
      place = config_.reference + "-" + std::to_string(number);
    }
  }
  const Learned* best = nullptr;
  std::int64_t most = 0;
  for (const Learned& learned : *learned_) {
    const auto& all = models_.all();
    if (std::any_of(all.begin(), all.end(), [&](const auto& other) {
          const auto& model = static_cast<const Model&>(*other);
          return model.monitor.has_value() && model.reference == learned.place;
        })) {
      continue;
    }
    const auto same = std::count_if(modules.begin(), modules.end(), [&](const model::ModuleRef& module) {
      return learned.modules.count({module.path(), module.type()}) != 0;
    });
    if (same <= most) continue;
    best = &learned;
    most = same;
  }
  if (best != nullptr) return best->place;
  note("the model " + modules.front().type() + " is watched with rules alone: no reference beside " +
       config_.reference + " was learned of it; torchtap preload --learn learns those of all models.");
  return {};
}

/// A path of this process, for its models from the second on with a number: "torchtap-2.prom".
std::string MonitorMode::beside(const std::string& path, std::size_t number) const {
  if (path.empty()) return path;
  const std::filesystem::path place = path;
  std::string end;
  if (report_.process != config_.process && path != report_.directory)
    end += "-" + std::to_string(report_.process);
  if (number != 0) end += "-" + std::to_string(number + 1);
  const bool is_file = path == config_.metrics;
  return (place.parent_path() / (is_file ? place.stem().string() + end + place.extension().string()
                                         : place.filename().string() + end))
      .string();
}

/// Judges the unfinished window, or writes the reference.
void MonitorMode::end(Model& model) {
  if (!model.monitor.has_value()) return;
  try {
    if (config_.mode == "learn") model.monitor->flush();
  } catch (const std::exception& error) {
    note("the reference of " + model.type + " could not be saved: " + tools::message_of(error));
    report_.lost = true;
  }
  model.monitor.reset();
}

/// Judges the unfinished windows of models that the program destroyed.
void MonitorMode::let_go_of_the_dead() {
  models_.let_go([this](FoundModel& model) {
    end(static_cast<Model&>(model));
    return true;
  });
}

void MonitorMode::note(const std::string& text) {
  const Lock lock(mutex_);
  auto& notes = report_.notes;
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

/// Models and modules that could not be seen.
void MonitorMode::add_notes() {
  report_.ran_types = models_.strangers();
  if (watched_ == 0) return;  // the launcher says it
  if (!report_.ran_types.empty()) note(models_.about_strangers());
  std::string list;
  for (const std::string& type : hidden_) list += (list.empty() ? "" : ", ") + type;
  if (!list.empty()) note("not watched, as their forward is compiled into the program: " + list + ".");
}

void MonitorMode::finish() noexcept {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    done_ = true;
    add_notes();
    // After an abort the rings of the last inputs have to stay, and nothing can be trusted to work.
    if (!ends_badly()) {
      for (const auto& found : models_.all()) end(static_cast<Model&>(*found));
    }
    report_.alarms = alarms_;
    tell(true);
  });
}

MonitorMode* MonitorMode::for_child() {
  auto* child = new MonitorMode(config_);
  child->guarded([&] {
    child->models_.inherit(models_);
    child->hidden_ = hidden_;
  });
  return child;
}

}  // namespace torchtap::tools::preload
