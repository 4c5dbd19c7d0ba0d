// Selects and attaches the watched modules, and writes the reference of a monitor that learns.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/reductions/blocks.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/views/monitor/detail/folders.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/open_forwards.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>
#include <torchtap/views/monitor/detail/window_blocks.hpp>
#include <torchtap/views/watch/calls.hpp>

namespace torchtap::views::monitor::detail {
namespace {

std::uint64_t next_watcher() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// Living watchers, by serial. Never destroyed: threads may end behind everything else.
struct Watchers {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Watcher>> all;
};
Watchers& watchers() {
  static Watchers& one = *new Watchers;
  return one;
}

/// Whether one of the modules is around the module.
bool is_inside(const std::vector<std::size_t>& around, const std::vector<model::ModuleRef>& modules,
               const model::ModuleRef& module) {
  return std::any_of(around.begin(), around.end(), [&](std::size_t one) {
    const std::string& outer = modules[one].path();
    return module.path().size() > outer.size() && module.path().compare(0, outer.size(), outer) == 0 &&
           module.path()[outer.size()] == '.';
  });
}

std::string some_of(std::vector<std::string> paths) {
  const bool more = paths.size() > 3;
  paths.resize(std::min<std::size_t>(paths.size(), 3));
  return base::quoted(paths) + (more ? " …" : "");
}

}  // namespace

Watcher::Watcher(std::vector<model::ModuleRef> modules, const std::string& reference, MonitorOptions options)
    : options_(std::move(options)),
      serial_(next_watcher()),
      modules_(std::move(modules)),
      reference_(reference),
      sampler_(options_.cost()) {
  TORCH_CHECK_VALUE(!modules_.empty(), "views::monitor::Monitor: there are no modules to watch.");
  check_options();
  choose(options_.select());
  if (!reference_.empty() && options_.learn().empty()) load_reference();
  note_lives();
  if (options_.parameters() && options_.learn().empty()) {
    parameters_ = std::make_unique<ParameterSteps>(modules_);
  }
}

void Watcher::note_lives() {
  lives_.clear();
  for (const model::ModuleRef& module : modules_) {
    Life& life = lives_.emplace_back();
    if (module.scripted()) life.script.emplace(module.script()._ivalue());
    if (module.scripted() || module.exported()) continue;
    life.shared = module.module().weak_from_this();
    life.expires = !life.shared.expired();
    life.unknown = !life.expires && !model::held_by(module).empty();
  }
}

/// Of modules of TorchScript keeps names alone, so that they do not live longer because of us.
void Watcher::let_go_of_scripts() {
  std::shared_ptr<const model::extend::Node> root;
  for (model::ModuleRef& module : modules_) {
    if (!module.scripted()) continue;
    auto node = std::make_shared<model::extend::Node>(model::extend::Access::node(module));
    node->script = nullptr;
    node->root = root;
    if (root == nullptr) root = node;
    module = model::extend::Access::make(std::move(node));
  }
}

void Watcher::follow(std::vector<model::ModuleRef> modules) {
  const auto is_other = [](const model::ModuleRef& a, const model::ModuleRef& b) {
    return a.path() != b.path() || a.type() != b.type() || a.reachable() != b.reachable();
  };
  TORCH_CHECK_VALUE(modules.size() == modules_.size() &&
                        std::equal(modules.begin(), modules.end(), modules_.begin(),
                                   [&](const auto& a, const auto& b) { return !is_other(a, b); }),
                    "views::monitor::Monitor::follow: the modules of this ", modules.front().type(),
                    " have other paths or types than those of the model that was watched.");
  TORCH_CHECK_VALUE(parameters_ == nullptr,
                    "views::monitor::Monitor::follow: with MonitorOptions::parameters a monitor watches one "
                    "object; make another monitor.");
  const std::scoped_lock lock(judge_mutex_, take_mutex_);
  handles_.clear();
  modules_ = std::move(modules);
  note_lives();
  attach_all();
  let_go_of_scripts();
}

Watcher::~Watcher() {
  const std::lock_guard lock(watchers().mutex);
  watchers().all.erase(serial_);
}

void tell_lost(const OpenForward& forward) noexcept {
  const auto watcher = [&] {
    const std::lock_guard lock(watchers().mutex);
    const auto at = watchers().all.find(forward.watcher);
    return at == watchers().all.end() ? nullptr : at->second.lock();
  }();
  if (watcher != nullptr) watcher->lost(forward);
}

void Watcher::check_options() const {
  const auto check = [](bool holds, const char* option, const char* expected, auto given) {
    TORCH_CHECK_VALUE(holds, "views::monitor::MonitorOptions::", option, ": expected ", expected, ", got ",
                      given, ".");
  };
  check(options_.cost() > 0, "cost", "a positive share", options_.cost());
  check(options_.window() > 0, "window", "a positive number of rows", options_.window());
  check(options_.window_seconds() > 0, "window_seconds", "positive seconds", options_.window_seconds());
  check(options_.ring() >= 0, "ring", "bytes, or 0 for none", options_.ring());
  check(options_.keep_incidents() > 0, "keep_incidents", "a positive number", options_.keep_incidents());
  check(options_.loss_scale() > 0 && std::isfinite(options_.loss_scale()), "loss_scale", "a positive number",
        options_.loss_scale());
  check(options_.max_series() >= 0, "max_series", "a number of modules", options_.max_series());
}

void Watcher::choose(const selectors::Selector& selector) {
  std::vector<bool> wanted(modules_.size(), false);
  wanted[0] = modules_[0].has_forward();
  for (const model::ModuleRef& module : selectors::select(modules_, selector)) {
    const auto at = std::find(modules_.begin(), modules_.end(), module);
    wanted[static_cast<std::size_t>(at - modules_.begin())] = true;
  }
  std::vector<model::ModuleRef> asked;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    if (!wanted[i]) continue;
    asked.push_back(modules_[i]);
    if (modules_[i].reachable()) {
      chosen_.push_back(i);
    } else {
      ++unreachable_;
    }
  }
  if (chosen_.empty()) hooks::check_reachable(asked);  // which says why
  TORCH_CHECK_VALUE(!chosen_.empty(), "views::monitor::Monitor: no module of ", modules_[0].type(),
                    " can be watched; expected at least one with a forward that hooks reach "
                    "(docs/compatibility.md).");
  if (chosen_[0] != 0) {
    for (std::size_t i = 1; i < modules_.size(); ++i) {
      if (modules_[i].has_forward() && modules_[i].reachable() && !is_inside(tops_, modules_, modules_[i]))
        tops_.push_back(i);
    }
  }

  has_series_.assign(modules_.size(), false);
  const auto most = static_cast<std::size_t>(options_.max_series());
  std::size_t shallow = 0, count = 0;
  for (const std::size_t i : chosen_) shallow += modules_[i].depth() <= 2 ? 1 : 0;
  const bool all = chosen_.size() <= most, by_depth = !all && shallow <= most;
  for (const std::size_t i : chosen_) {
    if (count == most || (by_depth && modules_[i].depth() > 2)) continue;
    has_series_[i] = true;
    ++count;
  }
}

void Watcher::load_reference() {
  learned_ = Reference::load(reference_);
  std::vector<std::string> missing;
  bool any = false;  // every model has a root, so a common root counts only if nothing else is watched
  for (const std::size_t i : chosen_) {
    const bool known =
        learned_.find(modules_[i].path(), name_of(recorders::RecorderKind::forward_output)) != nullptr;
    if (!known) missing.push_back(modules_[i].path());
    any = any || (known && (i != 0 || chosen_.size() == 1));
  }
  TORCH_CHECK_VALUE(any, "views::monitor::Monitor: no module that is watched is in the reference \"",
                    reference_, "\"; expected some of ", some_of(missing), ", but it has ",
                    some_of(learned_.paths()), ". Is it of another model?");
  without_reference_ = static_cast<std::int64_t>(missing.size());
}

void Watcher::open_ring() {
  const auto open = [&](const std::string& folder) {
    ring_ = std::make_unique<FlightRecorder>(folder, options_.ring(), incidents_folder_, options_.model(),
                                             options_.inputs());
  };
  if (!options_.ring_in().empty()) return open(options_.ring_in());
  try {
    open(private_folder("/dev/shm/torchtap-" + std::to_string(::geteuid()), /*must_be_own=*/true));
    return;
  } catch (const c10::Error&) {  // too little room there, as in many containers, or another user's
  }
  try {
    open(incidents_folder_);
  } catch (const c10::ValueError&) {  // of the options
    throw;
  } catch (const c10::Error& error) {  // a full disk is no reason not to watch
    count_error(error.what_without_backtrace());
  }
}

/// So that hours of learning are not lost at their end.
void Watcher::check_learn() const {
  namespace fs = std::filesystem;
  std::string plain = options_.learn();
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  const fs::path path = plain, parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(parent, error);
  TORCH_CHECK_VALUE(::access(parent.c_str(), W_OK | X_OK) == 0,
                    "views::monitor::MonitorOptions::learn: cannot write \"", options_.learn(),
                    "\": ", std::strerror(errno), ". Name a folder that can be made.");
  if (!fs::exists(path, error)) return;
  TORCH_CHECK_VALUE(fs::is_directory(path, error) &&
                        (fs::is_empty(path, error) || fs::exists(path / "manifest.json", error)),
                    "views::monitor::MonitorOptions::learn: \"", options_.learn(),
                    "\" holds something else than a recording; name a new folder.");
}

void Watcher::start() {
  const bool learns = !options_.learn().empty();
  if (!options_.incidents().empty() && !learns) {
    incidents_folder_ = private_folder(options_.incidents());
    cpu_capability();  // now: LibTorch's objects that know it have to outlive a monitor that is a static
                       // object
    if (options_.ring() > 0) open_ring();
  }
  if (learns) check_learn();
  if (!options_.tensorboard().empty() && !learns) {
    events_ = std::make_unique<tensorboard::EventFile>(options_.tensorboard());
  }
  window_began_ = clock_ns();
  {
    const std::lock_guard lock(watchers().mutex);
    watchers().all.emplace(serial_, weak_from_this());
  }
  try {
    attach_all();
    let_go_of_scripts();
    if (!learns && options_.thread()) {
      thread_ = base::start_thread("torchtap-watch", [self = shared_from_this()] { self->work(); });
    } else if (!learns) {
      prepare();
    }
  } catch (...) {
    handles_.clear();
    recorders_.clear();
    throw;
  }
}

/// Whether the model is in training, of which the module is called right now.
bool Watcher::is_training(std::size_t called) const {
  const model::ModuleRef& root = modules_.front();
  if (root.exported()) return false;
  if (const auto& script = lives_.front().script) {
    const auto object = script->lock();
    return object && torch::jit::Module(object).is_training();
  }
  // A root that no shared pointer owns may be gone while a part of it runs.
  const auto keep = lives_.front().shared.lock();
  return (keep != nullptr ? root : modules_[called]).module().is_training();
}

/// The modules that have parameters and buffers, kept by `keep`; none if the model is gone, or may be.
std::vector<model::ModuleRef> Watcher::living(std::vector<std::shared_ptr<const void>>& keep) const {
  std::vector<model::ModuleRef> modules;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    const Life& life = lives_[i];
    if (life.unknown) return {};
    if (life.script.has_value()) {
      const auto object = life.script->lock();
      if (!object) return {};
      auto node = std::make_shared<model::extend::Node>(model::extend::Access::node(modules_[i]));
      node->script = std::make_shared<const torch::jit::Module>(object);
      modules.push_back(model::extend::Access::make(std::move(node)));
      continue;
    }
    if (life.expires) keep.push_back(life.shared.lock());
    if (life.expires && keep.back() == nullptr) return {};
    const bool on_stack = !life.expires && !modules_[i].exported();
    if (!on_stack) modules.push_back(modules_[i]);
  }
  return modules;
}

void Watcher::attach_all() {
  hooks::DeferredCompile batch;
  const auto hook = [&](std::size_t module, hooks::Kind kind, auto function) {
    handles_.push_back(
        hooks::attach(modules_[module], kind, [weak = weak_from_this(), function](hooks::Event& event) {
          const auto self = weak.lock();
          if (self == nullptr || !self->made_here_) return;
          self->guarded([&] { function(*self, event); });
        }));
  };
  // Before the recorders, which ask whether the forward is sampled.
  const bool hidden = !tops_.empty();
  if (!hidden) {
    hook(0, hooks::Kind::forward_pre, [](Watcher& self, hooks::Event& event) { self.begin(event); });
  }
  for (std::size_t i = 0; i < tops_.size(); ++i) {
    hook(tops_[i], hooks::Kind::forward_pre,
         [i](Watcher& self, hooks::Event& event) { self.begin_hidden(i, event); });
  }
  if (!hidden) add_recorder(recorders::RecorderKind::forward_pre, {0}, rules::Tensor::input);
  add_recorder(recorders::RecorderKind::forward_output, chosen_, rules::Tensor::output);
  if (options_.gradients() && options_.learn().empty()) {
    add_recorder(recorders::RecorderKind::backward_output, chosen_, rules::Tensor::gradient);
  }
  // Behind the recorders.
  if (!hidden)
    hook(0, hooks::Kind::forward_output, [](Watcher& self, hooks::Event& event) { self.end(event); });
  for (const std::size_t top : tops_) {
    hook(top, hooks::Kind::forward_output,
         [](Watcher& self, hooks::Event& event) { self.end_hidden(event); });
  }
  batch.commit();
}

void Watcher::add_recorder(recorders::RecorderKind kind, const std::vector<std::size_t>& modules,
                           rules::Tensor tensor) {
  const auto former = std::find_if(recorders_.begin(), recorders_.end(),
                                   [&](const auto& one) { return one->kind() == recorders::name_of(kind); });
  if (former != recorders_.end()) {  // of an object that this one follows
    for (std::size_t i = 0; i < modules.size(); ++i)
      (*former)->replace(static_cast<std::int64_t>(i), modules_[modules[i]]);
    return;
  }
  recorders::RecorderOptions how;
  how.all_tensors().on_error(
      [weak = weak_from_this()](const std::string& path, const std::exception_ptr& error) {
        const auto self = weak.lock();
        if (self == nullptr) return;
        self->guarded([&] { self->not_counted(path); });
        self->guarded([&] { std::rethrow_exception(error); });
      });
  if (!options_.learn().empty()) {
    how.reduction(reductions::Blocks());
    how.condition([here = made_here_] { return static_cast<bool>(here); });
  } else {
    how.reduction(WindowBlocks());
    if (tensor == rules::Tensor::gradient) {  // they may arrive in other threads
      how.condition([weak = weak_from_this()] {
        const auto self = weak.lock();
        return self != nullptr && self->gradients_sampled_.load(std::memory_order_relaxed) &&
               self->made_here_;
      });
    } else {
      how.condition([serial = serial_, here = made_here_] { return samples_here(serial) && here; });
    }
  }
  auto recorder = recorders::make(kind, std::move(how));
  std::vector<model::ModuleRef> refs;
  refs.reserve(modules.size());
  for (const std::size_t module : modules) refs.push_back(modules_[module]);
  recorder->attach(refs);
  std::size_t i = 0;
  for (const recorders::Subrecorder& one : *recorder) watched_.push_back({one, tensor, modules[i++], 0});
  recorders_.push_back(std::move(recorder));
}

/// Notes a module that ran although nothing of it was counted.
void Watcher::not_counted(const std::string& path) {
  const std::lock_guard lock(data_mutex_);
  not_counted_.insert(path);
}

void Watcher::close() noexcept {
  if (closed_.exchange(true)) return;
  if (!made_here_) {
    // A child has no thread of it, and to destroy a condition that one waits for would never end. The ring's
    // file and TorchScript's compiler, whose locks may be held, are the parent's, too.
    return guarded([&] { kept_ = shared_from_this(); });
  }
  guarded([&] {
    hooks::DeferredCompile batch;
    handles_.clear();
    for (const auto& recorder : recorders_) recorder->detach();
    batch.commit();
  });
  guarded([&] {
    if (!options_.learn().empty()) return save_learned();
    find_failed_here();
    {
      const std::lock_guard lock(due_mutex_);
      due_.window = stops_ = true;
    }
    due_changed_.notify_all();
    if (!thread_.joinable()) {
      serve(true);
    } else if (thread_.get_id() == std::this_thread::get_id()) {
      return thread_.detach();  // a callback destroys the monitor
    } else {
      thread_.join();
    }
    tell_unjudged();
  });
}

void Watcher::on_alarm(std::function<void(const Alarm&)> callback) {
  const std::lock_guard lock(data_mutex_);
  std::swap(callback_, callback);  // the former one is destroyed outside of the lock
}

std::vector<Alarm> Watcher::alarms() const {
  if (!made_here_) return {};
  const std::lock_guard lock(data_mutex_);
  return book_.all();
}

void Watcher::save_learned() {
  std::vector<storage::Entry> entries;
  for (const auto& recorder : recorders_) {
    for (storage::Entry& entry : recorder->entries()) entries.push_back(std::move(entry));
  }
  storage::save(options_.learn(), entries, storage::SaveOptions().overwrite(true).mkdir(true));
}

/// A forward of this thread that threw, and behind which no other began.
void Watcher::find_failed_here() {
  const OpenForward* const open = open_forward_here(serial_);
  if (open == nullptr || !tops_.empty() || !watch::counts(modules_.front()) ||
      watch::calls_here() > open->depth)
    return;  // or this thread is in it
  const std::int64_t number = open->number;
  forget_forward_here(serial_);
  failed(number, /*thread_ends=*/true);
}

void Watcher::flush() {
  if (!made_here_) return;
  if (!options_.learn().empty()) return save_learned();
  find_failed_here();
  if (judging_.load() == std::this_thread::get_id()) return;  // from a callback
  if (!options_.thread()) return serve(true);
  std::unique_lock lock(due_mutex_);
  const std::uint64_t mine = due_.ticket = ++tickets_;
  due_changed_.notify_all();
  due_done_.wait(lock, [&] { return done_ >= mine || ended_; });
}

}  // namespace torchtap::views::monitor::detail
