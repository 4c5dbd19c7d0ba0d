// Models of a program that is not rebuilt, watched for the launcher.
#include "monitor_mode.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>

#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/model/walk.hpp>

#include "agent.hpp"
#include "packed_entries.hpp"
#include "publishing.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

namespace monitor = views::monitor;
using torch::nn::Module;

}  // namespace

MonitorMode::Watched::~Watched() {
  ends.clear();
  if (watcher == nullptr) return;
  watcher->close();
}

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
  auto watched = std::make_unique<Watched>();
  std::string name = model.type;
  if (!model.method.empty() && model.method != "forward") name += "." + model.method;
  watched->name = free_name(std::move(name));
  watched->number = watched_;
  watched->kind = kind_of(modules);
  try {
    if (config_.mode == "learn") {
      watched->learner.emplace(modules);
    } else {
      watch(*watched, modules);
    }
    hook_ends(*watched, modules);
  } catch (const std::exception& error) {
    report_.lost = report_.lost || config_.mode == "learn";
    return note("the model " + watched->name + " is not watched: " + tools::message_of(error));
  }
  model.watched = std::move(watched);
  ++watched_;
  ++report_.modules;
  tell(false);
  publish_at_end();
}

/// Its ring lies where the launcher reads it, and what is told goes to the launcher as bytes of a file.
void MonitorMode::watch(Watched& watched, const std::vector<model::ModuleRef>& modules) const {
  monitor::MonitorOptions options;
  options.model(watched.name).rules(rules::Rules::parse(config_.rules)).cost(config_.cost);
  std::uint64_t at = 0;
  Publishing* const publishing = Publishing::here();
  char* const ring = publishing->shared(monitor::extend::FlightRecorder::room_for(options.ring()), at);
  const auto file = std::make_shared<std::function<void(const char*, std::size_t)>>();
  const auto tell = [file](const monitor::extend::Told& told) {
    const std::string bytes = packed(told);
    (*file)(bytes.data(), bytes.size());
  };
  watched.watcher =
      std::make_shared<monitor::extend::Watcher>(modules, options, monitor::extend::Elsewhere{tell, ring});
  *file = publishing->file(std::to_string(ring == nullptr ? 0 : at) + " " + std::to_string(watched.number) +
                           "\n" + packed(watched.watcher->judged()));
  watched.watcher->start();
}

/// Behind the watcher's hooks: forwards that ended, after which results may be published.
void MonitorMode::hook_ends(Watched& watched, const std::vector<model::ModuleRef>& modules) {
  const monitor::extend::Chosen chosen = monitor::extend::choose(modules, monitor::MonitorOptions().select());
  const std::vector<std::size_t> outermost = chosen.tops.empty() ? std::vector<std::size_t>{0} : chosen.tops;
  hooks::DeferredCompile batch;
  watched.ends.clear();
  for (const std::size_t module : outermost) {
    watched.ends.push_back(hooks::attach(modules[module], hooks::Kind::forward_output,
                                         [this, its = &watched](hooks::Event& /*event*/) {
                                           if (serial_ != generation() || hooks::extend::call_depth() > 1)
                                             return;
                                           ++its->unpublished;
                                           Publishing::here()->call();
                                           if (Publishing::here()->due()) guarded([&] { publish(*its); });
                                         }));
  }
  batch.commit();
}

/// A reference so far, or a window that goes on.
void MonitorMode::publish(Watched& watched, bool last) {
  const auto publish = [&] {
    if (watched.learner.has_value()) {
      std::vector<storage::Entry> entries = watched.learner->entries();
      entries.emplace(entries.begin())->type = watched.name;
      Publishing::here()->part(watched.number, pack(entries));
    } else {
      monitor::extend::Told told;
      told.counts = watched.watcher->counts();
      told.windows.push_back(watched.watcher->unfinished());
      Publishing::here()->part(watched.number, packed(told));
    }
  };
  Publishing::here()->results(publish, &watched.unpublished, last);
}

/// Whether a watcher whose model is gone goes on with this one.
bool MonitorMode::follow(Model& model, const std::vector<model::ModuleRef>& modules) {
  std::unique_ptr<Watched> watched = resting_.take(kind_of(modules));
  if (watched == nullptr) return false;
  try {
    if (watched->learner.has_value()) {
      watched->learner->follow(modules);
    } else {
      watched->watcher->follow(modules);
    }
    hook_ends(*watched, modules);
  } catch (const std::exception& error) {
    note("the model " + watched->name +
         " has another monitor since it was made anew: " + tools::message_of(error));
    end(std::move(watched));
    return false;
  }
  model.watched = std::move(watched);
  return true;
}

/// "Net", or "Net-2" while another one has that name.
std::string MonitorMode::free_name(std::string name) const {
  const std::string wanted = name;
  const auto is_taken = [&] {
    const auto has_it = [&](const std::unique_ptr<Watched>& one) {
      return one != nullptr && one->name == name;
    };
    return std::any_of(resting_.all().begin(), resting_.all().end(), has_it) ||
           std::any_of(models_.all().begin(), models_.all().end(),
                       [&](const auto& found) { return has_it(static_cast<const Model&>(*found).watched); });
  };
  for (int number = 2; is_taken(); ++number) name = wanted + "-" + std::to_string(number);
  return name;
}

/// Tells what is left of it.
void MonitorMode::end(std::unique_ptr<Watched> watched) {
  if (watched == nullptr || !watched->learner.has_value()) return;
  guarded([&] { publish(*watched, /*last=*/true); });
}

/// The program destroyed the model.
bool MonitorMode::bury(Model& model) {
  if (model.watched != nullptr) end(resting_.add(std::move(model.watched)));
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
    while (std::unique_ptr<Watched> watched = resting_.take()) end(std::move(watched));
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
