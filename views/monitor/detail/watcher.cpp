// Attaches to the watched modules.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/views/monitor/detail/folders.hpp>
#include <torchtap/views/monitor/detail/open_forwards.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>
#include <torchtap/views/monitor/detail/window_blocks.hpp>
#include <torchtap/views/watch/calls.hpp>
#include <torchtap/views/watch/same_modules.hpp>

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

}  // namespace

Watcher::Watcher(std::vector<model::ModuleRef> modules, MonitorOptions options, Elsewhere elsewhere)
    : options_(std::move(options)),
      serial_(next_watcher()),
      modules_(std::move(modules)),
      chosen_(choose(modules_, options_.select())),
      elsewhere_(std::move(elsewhere)),
      sampler_(options_.cost()) {
  check_options();
  note_lives();
  if (options_.parameters()) parameters_ = std::make_unique<ParameterSteps>(modules_);
}

Watcher::Watcher(std::vector<model::ModuleRef> modules, const std::string& reference, MonitorOptions options)
    : Watcher(std::move(modules), std::move(options), {}) {
  judge_ = std::make_unique<Judge>(judged(), reference, options_, *this);
}

/// If there are more modules than series, those of little depth have one.
JudgedModel Watcher::judged() const {
  JudgedModel model;
  model.name = options_.model();
  model.chosen = chosen_.modules;
  model.unreachable = chosen_.unreachable;
  for (const model::ModuleRef& module : modules_)
    model.modules.push_back({module.path(), module.aliases(), module.type(), module.leaf(), false});
  const auto most = static_cast<std::size_t>(options_.max_series());
  const auto is_shallow = [&](std::size_t module) { return modules_[module].depth() <= 2; };
  const auto& chosen = chosen_.modules;
  const auto shallow = static_cast<std::size_t>(std::count_if(chosen.begin(), chosen.end(), is_shallow));
  const bool by_depth = chosen.size() > most && shallow <= most;
  std::size_t count = 0;
  for (const std::size_t i : chosen) {
    if (count == most || (by_depth && !is_shallow(i))) continue;
    model.modules[i].has_series = true;
    ++count;
  }
  // In the order of `watched_`.
  if (chosen_.tops.empty()) model.tensors.emplace_back(0, rules::Tensor::input);
  for (const std::size_t i : chosen) model.tensors.emplace_back(i, rules::Tensor::output);
  if (options_.gradients())
    for (const std::size_t i : chosen) model.tensors.emplace_back(i, rules::Tensor::gradient);
  return model;
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

void Watcher::follow(std::vector<model::ModuleRef> modules) {
  watch::check_same("views::monitor::Monitor::follow", modules_, modules);
  TORCH_CHECK_VALUE(parameters_ == nullptr,
                    "views::monitor::Monitor::follow: with MonitorOptions::parameters a monitor watches one "
                    "object; make another monitor.");
  const std::scoped_lock lock(judge_mutex_, take_mutex_);
  handles_.clear();
  modules_ = std::move(modules);
  note_lives();
  attach_all();
  if (modules_.front().scripted()) modules_ = watch::names_of(modules_);
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

void Watcher::open_ring() {
  if (elsewhere_.ring != nullptr) {
    ring_ = std::make_unique<FlightRecorder>(elsewhere_.ring, options_.ring(), options_.model(),
                                             options_.inputs());
  }
  if (judge_ == nullptr || judge_->incidents_folder().empty() || options_.ring() == 0) return;
  const auto open = [&](const std::string& folder) {
    ring_ = std::make_unique<FlightRecorder>(folder, options_.ring(), judge_->incidents_folder(),
                                             options_.model(), options_.inputs());
  };
  if (!options_.ring_in().empty()) return open(options_.ring_in());
  try {
    open(private_folder("/dev/shm/torchtap-" + std::to_string(::geteuid()), /*must_be_own=*/true));
    return;
  } catch (const c10::Error&) {  // too little room there, as in many containers, or another user's
  }
  try {
    open(judge_->incidents_folder());
  } catch (const c10::ValueError&) {  // of the options
    throw;
  } catch (const c10::Error& error) {  // a full disk is no reason not to watch
    count_error(error.what_without_backtrace());
  }
}

void Watcher::start() {
  open_ring();
  window_began_ = clock_ns();
  {
    const std::lock_guard lock(watchers().mutex);
    watchers().all.emplace(serial_, weak_from_this());
  }
  try {
    attach_all();
    if (modules_.front().scripted()) modules_ = watch::names_of(modules_);
    if (judge_ == nullptr) return;
    if (options_.thread()) {
      thread_ = base::start_thread("torchtap-watch", [self = shared_from_this()] { self->work(); });
    } else {
      judge_->prepare();
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
  const bool hidden = !chosen_.tops.empty();
  if (!hidden) {
    hook(0, hooks::Kind::forward_pre, [](Watcher& self, hooks::Event& event) { self.begin(event); });
  }
  for (std::size_t i = 0; i < chosen_.tops.size(); ++i) {
    hook(chosen_.tops[i], hooks::Kind::forward_pre,
         [i](Watcher& self, hooks::Event& event) { self.begin_hidden(i, event); });
  }
  if (!hidden) add_recorder(recorders::RecorderKind::forward_pre, {0}, rules::Tensor::input);
  add_recorder(recorders::RecorderKind::forward_output, chosen_.modules, rules::Tensor::output);
  if (options_.gradients()) {
    add_recorder(recorders::RecorderKind::backward_output, chosen_.modules, rules::Tensor::gradient);
  }
  // Behind the recorders.
  if (!hidden)
    hook(0, hooks::Kind::forward_output, [](Watcher& self, hooks::Event& event) { self.end(event); });
  for (const std::size_t top : chosen_.tops) {
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
  how.reduction(WindowBlocks());
  if (tensor == rules::Tensor::gradient) {  // they may arrive in other threads
    how.condition([weak = weak_from_this()] {
      const auto self = weak.lock();
      return self != nullptr && self->gradients_sampled_.load(std::memory_order_relaxed) && self->made_here_;
    });
  } else {
    how.condition([serial = serial_, here = made_here_] { return samples_here(serial) && here; });
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

std::string Watcher::capture(const std::string& reason) {
  TORCH_CHECK_VALUE(made_here_,
                    "views::monitor::Monitor::capture: the monitor is another process's, from "
                    "which this one was forked; make one here.");
  return judge_->capture(reason);
}

/// Notes a module that ran although nothing of it was counted.
void Watcher::not_counted(const std::string& path) {
  {
    const std::lock_guard lock(due_mutex_);
    if (!not_counted_.insert(path).second) return;
  }
  Due due;
  due.told.not_counted.push_back(path);
  ask(std::move(due));
}

/// The first of them is told, and all are counted, by whoever judges.
void Watcher::count_error(const char* what) noexcept {
  if (judge_ != nullptr) return judge_->count_error(what);
  try {
    Due due;
    due.told.errors.emplace_back(what);
    tell_elsewhere(std::move(due));
  } catch (const std::exception&) {  // no memory to tell of it
  }
}

Counts Watcher::counts() const {
  Counts counts;
  counts.forwards = forwards_.load();
  counts.sampled = sampled_.load();
  counts.failures = failures_.load();
  counts.own_ns = own_ns_.load();
  counts.nonfinite = nonfinite_.load();
  counts.period = sampler_.period();
  counts.ring_skipped = ring_ == nullptr ? 0 : ring_->skipped();
  return counts;
}

std::vector<KeptForward> Watcher::forwards() const {
  return ring_ == nullptr ? std::vector<KeptForward>() : ring_->forwards();
}

void Watcher::note_window(const std::string& text) {
  if (ring_ != nullptr) ring_->note_window(text);
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
    find_failed_here();
    if (judge_ == nullptr) {
      Due due;
      due.window = due.told.ended = true;
      return tell_elsewhere(std::move(due));
    }
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
    judge_->end();
  });
}

/// A forward of this thread that threw, and behind which no other began.
void Watcher::find_failed_here() {
  const OpenForward* const open = open_forward_here(serial_);
  if (open == nullptr || !chosen_.tops.empty() || !watch::counts(modules_.front()) ||
      watch::calls_here() > open->depth)
    return;  // or this thread is in it
  const std::int64_t number = open->number;
  forget_forward_here(serial_);
  failed(number, /*thread_ends=*/true);
}

void Watcher::flush() {
  if (!made_here_) return;
  find_failed_here();
  if (judge_ == nullptr) return tell_elsewhere({{}, true, 0});
  if (judging_.load() == std::this_thread::get_id()) return;  // from a callback
  if (!options_.thread()) return serve(true);
  std::unique_lock lock(due_mutex_);
  const std::uint64_t mine = due_.ticket = ++tickets_;
  due_changed_.notify_all();
  due_done_.wait(lock, [&] { return done_ >= mine || ended_; });
}

}  // namespace torchtap::views::monitor::detail
