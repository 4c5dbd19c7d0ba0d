// Models of a program that is not rebuilt, each with a monitor.
#include "monitor_mode.hpp"

#include <ATen/Parallel.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <torchtap/model/walk.hpp>

#include "agent.hpp"
#include "linked_libraries.hpp"
#include "process_end.hpp"

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
  views::monitor::Options options;
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
  try {
    model.monitor.emplace(modules, learns ? std::string() : config_.reference, std::move(options));
  } catch (const std::exception& error) {
    return note("the model " + name + " is not watched: " + tools::message_of(error));
  }
  if (learns && watched_ != 0) {
    note(beside(report_.directory, watched_) + " is the reference of another model, " + name + ".");
  }
  ++watched_;
  ++report_.modules;
  tell(false);
  if (ran_.exchange(true)) return;
  watch(0);
  // LibTorch destroys its pool of threads at exit, and waits forever for the pool's lock where it is asked
  // for its number of threads afterwards. Functions that are registered after the pool was made run before it
  // ends.
  static_cast<void>(at::get_num_threads());
  std::atexit(preload::finish);
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

/// Models that the program destroyed: what they left is judged.
void MonitorMode::let_go_of_the_dead() {
  models_.let_go([](FoundModel& model) {
    static_cast<Model&>(model).monitor.reset();
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
      for (const auto& found : models_.all()) static_cast<Model&>(*found).monitor.reset();
    }
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
