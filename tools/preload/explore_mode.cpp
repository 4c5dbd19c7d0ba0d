// Models of a program that is not rebuilt, as runs of an explorer.
#include "explore_mode.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include <torchtap/model/walk.hpp>

#include "agent.hpp"
#include "explore_threads.hpp"
#include "models.hpp"
#include "publishing.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

namespace explorer = views::explorer;
using torch::nn::Module;

/// The files of runs: explorer/run.tapx, explorer/run-2.tapx and so on.
class Files {
 public:
  using File = std::function<void(const char* data, std::size_t bytes)>;
  const File& of(std::int64_t run) {
    const std::lock_guard lock(mutex_);
    File& file = files_[run];
    if (!file)
      file = Publishing::here()->file("explorer/run" + (run == 1 ? "" : "-" + std::to_string(run)) + ".tapx");
    return file;
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, File> files_;  // which stay where they are
};

}  // namespace

ExploreMode::ExploreMode(const Config& config)
    : Mode(config),
      models_(
          {[] { return std::make_shared<Model>(); },
           [this](const model::ModuleRef& module) {
             if (!module.has_forward() || module.reachable()) return module.has_forward();
             report_.compiled_in.insert(module.type());
             if (!module.path().empty()) hidden_.insert(module.type());
             return false;
           },
           [this](const std::string& text) { note(text); }, "shown",
           [this](const std::shared_ptr<FoundModel>& model) { return bury(static_cast<Model&>(*model)); }}) {}

void ExploreMode::found_root(const Module& root) {
  const Lock lock(mutex_);
  if (done_) return;
  if (Thread* const thread = Thread::here(); thread != nullptr) close(*thread, 0);
  models_.let_go();
  models_.found(root);
}

void ExploreMode::called(Module& module) {
  const Lock lock(mutex_);
  if (done_) return;
  FoundModel* const found = models_.of(module);
  if (found == nullptr) return models_.let_go();
  auto& model = static_cast<Model&>(*found);
  if (model.watched == nullptr && model.visible.count(&module) != 0) begin(model);
}

/// The model runs for the first time.
void ExploreMode::begin(Model& model) {
  open_explorer();
  const auto before_call = [this, serial = serial_, weak = model.weak_from_this()](const Module& module,
                                                                                   const hooks::Event& call) {
    if (serial != generation()) return;
    const Lock lock(mutex_);
    const auto its = std::static_pointer_cast<Model>(weak.lock());
    if (!done_ && its != nullptr && its->watched != nullptr && its->watched->hides_root()) {
      before(*its, module, call);
    }
  };
  model.watched = views::explorer::extend::models_of(*explorer_).watch(model.modules, {}, "", before_call);
  model.ran = true;
}

/// The launcher writes the runs, and shows them.
void ExploreMode::open_explorer() {
  if (explorer_ != nullptr) return;
  explorer::ExplorerOptions options;
  options.name(report_.program).on_error([this](const std::string& text) { note(text); });
  options.write([files = std::make_shared<Files>()](std::int64_t run, const char* data, std::size_t bytes) {
    files->of(run)(data, bytes);
  });
  explorer_ = std::make_unique<explorer::Explorer>(std::move(options));
  report_.attached = true;
  tell(false);
  publish_at_end();
}

c10::IValue ExploreMode::script(const torch::jit::Method& method,
                                const std::vector<c10::IValue>& /*arguments*/,
                                const std::function<c10::IValue()>& original) {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    open_explorer();
    auto* const model = static_cast<Model*>(models_.of(method));
    if (model == nullptr || model->watched != nullptr) return;
    models_.count_held(*model, [&] {
      model->watched = views::explorer::extend::models_of(*explorer_)
                           .watch(model::walk_modules(method.owner(), method.name()), {}, "");
    });
    model->ran = true;
  });
  return original();
}

/// A model that the program destroyed: its run is finished, and its parameters are freed.
bool ExploreMode::bury(Model& model) {
  if (Thread* const thread = Thread::here(); thread != nullptr) close(*thread, 0);
  model.watched->let_go();
  end(model);
  return true;
}

void ExploreMode::end(Model& model) {
  if (model.watched == nullptr) return;
  ++report_.modules;
  report_.samples += model.watched->step() + 1;
  model.watched.reset();
}

/// Models and modules that could not be seen.
void ExploreMode::add_notes() {
  report_.ran_types = models_.strangers();
  if (explorer_ == nullptr) return;  // the launcher says it
  if (!report_.ran_types.empty()) note(models_.about_strangers());
  std::string list;
  for (const std::string& type : hidden_) list += (list.empty() ? "" : ", ") + type;
  if (!list.empty()) note("not shown, as their forward is compiled into the program: " + list + ".");
}

void ExploreMode::finish() noexcept {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    if (Thread* const thread = Thread::here(); thread != nullptr) close(*thread, 0);
    done_ = true;
    add_notes();
    for (const auto& found : models_.all()) end(static_cast<Model&>(*found));
    explorer_.reset();
    tell(true);
  });
}

ExploreMode* ExploreMode::for_child() {
  auto* child = new ExploreMode(config_);
  child->guarded([&] {
    if (explorer_ != nullptr) views::explorer::extend::models_of(*explorer_).leave_to_parent();
    if (Thread* const thread = Thread::here(); thread != nullptr) thread->leave_to_parent();
    child->models_.inherit(models_);
    child->hidden_ = hidden_;
  });
  return child;
}

}  // namespace torchtap::tools::preload
