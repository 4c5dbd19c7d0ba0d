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
#include "publishing.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

using torch::nn::Module;

std::vector<std::pair<std::string, std::string>> kind_of(const std::vector<model::ModuleRef>& modules) {
  std::vector<std::pair<std::string, std::string>> kind;
  for (const model::ModuleRef& module : modules) kind.emplace_back(module.path(), module.type());
  kind.emplace_back(modules.front().method(), "");
  return kind;
}

}  // namespace

MonitorMode::MonitorMode(const Config& config)
    : Mode(config),
      models_(
          {[] { return std::make_shared<Model>(); },
           [this](const model::ModuleRef& module) {
             if (!module.has_forward() || module.reachable()) return module.has_forward();
             report_.compiled_in.insert(module.type());
             if (!module.path().empty()) hidden_.insert(module.type());
             return false;
           },
           [this](const std::string& text) { note(text); }, "watched",
           [this](const std::shared_ptr<FoundModel>& model) { return bury(static_cast<Model&>(*model)); }}) {}

void MonitorMode::found_root(const Module& root) {
  const Lock lock(mutex_);
  if (done_) return;
  models_.let_go();
  models_.found(root);
}

void MonitorMode::called(Module& module) {
  const Lock lock(mutex_);
  if (done_) return;
  FoundModel* const model = models_.of(module);
  if (model == nullptr) return models_.let_go();
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
  if (follow(model, modules)) return;
  if (report_.directory.empty()) report_.directory = own_place(config_);
  std::string name = model.type;
  if (!model.method.empty() && model.method != "forward") name += "." + model.method;
  name = free_name(name);
  const bool learns = config_.mode == "learn";
  const std::size_t place = watched_;
  views::monitor::MonitorOptions options;
  options.model(name);
  if (learns) {
    options.learn(beside(report_.directory, place));
  } else {
    options.incidents(report_.directory)
        .rules(rules::Rules::parse(config_.rules))
        .cost(config_.cost)
        .metrics_file(beside(config_.metrics, place))
        .tensorboard(beside(config_.tensorboard, place));
  }
  const std::string reference = learns ? "" : reference_for(modules);
  try {
    if (learns) check_still_free(beside(report_.directory, place), config_.overwrite);
    model.watched.reset(
        new Watched{{modules, reference, std::move(options)}, name, reference, place, kind_of(modules)});
    model.watched->monitor.on_alarm(
        [this](const views::monitor::Alarm& alarm) { alarms_ += alarm.raised ? 1 : 0; });
  } catch (const std::exception& error) {
    report_.lost = report_.lost || learns;
    return note("the model " + name + " is not watched: " + tools::message_of(error));
  }
  if (learns && place != 0) {
    note(beside(report_.directory, place) + " is the reference of another model, " + name + ".");
  }
  ++watched_;
  ++report_.modules;
  tell(false);
  publish_at_end();
}

/// Whether a monitor whose model is gone goes on with this one.
bool MonitorMode::follow(Model& model, const std::vector<model::ModuleRef>& modules) {
  const auto kind = kind_of(modules);
  const auto former =
      std::find_if(resting_.begin(), resting_.end(), [&](const auto& one) { return one->kind == kind; });
  if (former == resting_.end()) return false;
  std::unique_ptr<Watched> watched = std::move(*former);
  resting_.erase(former);
  try {
    watched->monitor.follow(modules);
  } catch (const std::exception& error) {
    note("the model " + watched->name +
         " has another monitor since it was made anew: " + tools::message_of(error));
    end(std::move(watched));
    return false;
  }
  model.watched = std::move(watched);
  return true;
}

/// The monitors that there are.
std::vector<const MonitorMode::Watched*> MonitorMode::all() const {
  std::vector<const Watched*> all;
  for (const auto& one : resting_) all.push_back(one.get());
  for (const auto& found : models_.all()) {
    if (const auto& watched = static_cast<const Model&>(*found).watched; watched != nullptr)
      all.push_back(watched.get());
  }
  return all;
}

/// "Net", or "Net-2" while another one has that name.
std::string MonitorMode::free_name(std::string name) const {
  const auto others = all();
  const std::string wanted = name;
  const auto is_taken = [&] {
    return std::any_of(others.begin(), others.end(),
                       [&](const Watched* other) { return other->name == name; });
  };
  for (int number = 2; is_taken(); ++number) name = wanted + "-" + std::to_string(number);
  return name;
}

/// The reference that was learned of this model: of those whose modules have the paths and types of most of
/// its own, the first that no other model is compared with, or else the first.
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
  const auto others = all();
  const Learned* best = nullptr;
  std::pair<std::int64_t, bool> most{1, false};  // modules; whether it is free
  for (const Learned& learned : *learned_) {
    const auto same = std::count_if(modules.begin(), modules.end(), [&](const model::ModuleRef& module) {
      return learned.modules.count({module.path(), module.type()}) != 0;
    });
    const bool is_free = std::none_of(others.begin(), others.end(), [&](const Watched* other) {
      return other->reference == learned.place;
    });
    const std::pair<std::int64_t, bool> fits{same, is_free};
    if (fits < most || (best != nullptr && fits == most)) continue;
    best = &learned;
    most = fits;
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
  if (report_.directory != config_.save && path != report_.directory)
    end += "-process" + std::to_string(Publishing::here()->number());
  if (number != 0) end += "-" + std::to_string(number + 1);
  const bool is_file = path == config_.metrics;
  return (place.parent_path() / (is_file ? place.stem().string() + end + place.extension().string()
                                         : place.filename().string() + end))
      .string();
}

/// Judges the unfinished window, or writes the reference.
void MonitorMode::end(std::unique_ptr<Watched> watched) {
  if (watched == nullptr || config_.mode != "learn") return;
  try {
    watched->monitor.flush();
  } catch (const std::exception& error) {
    note("the reference of " + watched->name + " could not be saved: " + tools::message_of(error));
    report_.lost = true;
  }
}

/// The program destroyed the model. Its monitor rests, as several others at most.
bool MonitorMode::bury(Model& model) {
  constexpr std::size_t kMost = 8;
  if (model.watched != nullptr) resting_.push_back(std::move(model.watched));
  if (resting_.size() <= kMost) return true;
  end(std::move(resting_.front()));
  resting_.pop_front();
  return true;
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
    for (const auto& found : models_.all()) end(std::move(static_cast<Model&>(*found).watched));
    while (!resting_.empty()) {
      end(std::move(resting_.front()));
      resting_.pop_front();
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
