// Attaches, counts steps, and reads parameters at the end of backward.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <locale>
#include <sstream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/views/explorer/detail/program.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>
#include <torchtap/views/explorer/detail/watched_model.hpp>
#include <torchtap/views/explorer/explorer.hpp>

namespace torchtap::views::explorer::detail {
namespace {

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

RunInfo info_of(const ExplorerOptions& options) {
  RunInfo info;
  info.program = program_name();
  const std::string& directory = options.save();
  const std::size_t end = directory.find_last_not_of('/');
  const std::string base = directory.substr(0, end == std::string::npos ? 0 : end + 1);
  const std::string last = base.substr(base.find_last_of('/') + 1);
  info.name = !options.name().empty() ? options.name() : !last.empty() ? last : info.program;
  info.started = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  info.identity = new_identity(info.started);
  return info;
}

/// The module's printed description, from the first to the last parenthesis, in one line.
std::string attributes_of(const torch::nn::Module& module) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  module.pretty_print(out);
  std::string text = out.str();
  if (text == module.name()) return "";  // which may be one in "(anonymous namespace)"
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  text = text.substr(open + 1, close - open - 1);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// By which a model is known again.
const void* address_of(const model::ModuleRef& root) {
  return root.scripted() ? static_cast<const void*>(root.script()._ivalue().get())
                         : static_cast<const void*>(&root.module());
}

}  // namespace

WatchedModel::WatchedModel(ExplorerOptions given, Place place)
    : options(std::move(given)),
      serial_(next_serial()),
      run_(std::make_shared<LiveRun>(info_of(options), static_cast<std::size_t>(options.columns()),
                                     options.memory(), options.every())),
      pace_(options, *run_->control(), std::move(place.models)) {
  if (options.write()) {
    const auto write = [write = options.write(), number = place.number](const char* data, std::size_t bytes) {
      write(number, data, bytes);
    };
    run_->save_to(std::make_shared<RunFileWriter>(write, run_->info()));
  } else if (!options.save().empty()) {
    run_->save_to(
        std::make_shared<RunFileWriter>(options.save(), run_->info(), place.number, options.disk()));
  }
  tell_file_failure();
}

WatchedModel::~WatchedModel() {
  close();
}

void WatchedModel::watch(const std::vector<model::ModuleRef>& modules, const selectors::Selector& selector,
                         BeforeCall before_call) {
  const model::ModuleRef& root = modules.front();
  before_call_ = std::move(before_call);
  hides_root_ = before_call_ != nullptr && !(root.has_forward() && root.reachable());
  try {
    attach_all(modules, selector);
  } catch (...) {  // as if it had not been called
    handles_.clear();
    root_ = nullptr;
    nesting_ = {};
    hooked_.clear();
    held_.clear();
    constants_.clear();
    run_->with_graph([](Graph& graph) { graph = Graph(); });
    throw;
  }
  ++watching;
}

void WatchedModel::attach_all(const std::vector<model::ModuleRef>& modules,
                              const selectors::Selector& selector) {
  const model::ModuleRef& root = modules.front();
  scripted_ = root.scripted();
  root_counts_ = !hides_root_ && watch::counts(root);
  root_ = address_of(root);
  if (scripted_) {
    method_ = root.method();
    is_training_ = [model = root.script()] { return model.is_training(); };
  } else {
    is_training_ = [model = &root.module()] { return model->is_training(); };
    owner_ = root.module().weak_from_this();
    owned_ = !owner_.expired();
  }
  for (std::size_t i = 0; i < modules.size(); ++i) describe(modules[i], static_cast<std::int32_t>(i));
  nesting_ = watch::Nesting(modules);
  hooks::DeferredCompile batch;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const bool wanted =
        i == 0 ? !hides_root_ : modules[i].has_forward() && modules[i].reachable() && selector(modules[i]);
    hooked_.push_back(wanted);
    if (wanted && before_call_ && !scripted_) tell_before_calls(modules[i]);
  }
  auto handles = watch::watch_calls(modules, weak_from_this(), [this](std::size_t i) { return hooked_[i]; });
  std::move(handles.begin(), handles.end(), std::back_inserter(handles_));
  batch.commit();
}

bool WatchedModel::is_gone() const {
  return owned_ && !closed_ && owner_.expired();
}

bool WatchedModel::watches(const model::ModuleRef& root) const {
  return !closed_ && root_ != nullptr && root_ == address_of(root) &&
         (!scripted_ || method_ == root.method());
}

void WatchedModel::describe(const model::ModuleRef& module, std::int32_t index) {
  ModuleInfo info;
  info.path = module.path();
  info.type = module.type();
  info.name =
      module.path().empty() ? module.type() : module.path().substr(module.path().find_last_of('.') + 1);
  for (const model::Held& one : model::held_by(module)) {
    constants_.push_back(one.tensor);
    if (one.buffer) continue;
    ParameterInfo parameter{one.name, one.tensor.scalar_type(), one.tensor.sizes().vec(),
                            one.tensor.requires_grad()};
    const auto same = std::find_if(held_.begin(), held_.end(),
                                   [&](const Held& other) { return other.tensor.is_same(one.tensor); });
    parameter.owner = same == held_.end() ? index : same->module;
    parameter.position =
        same == held_.end() ? static_cast<std::int32_t>(info.parameters.size()) : same->position;
    if (same == held_.end()) held_.push_back({one.tensor, index, parameter.position, one.name});
    info.parameters.push_back(std::move(parameter));
  }
  if (!module.scripted()) info.attributes = attributes_of(module.module());
  run_->with_graph([&](Graph& graph) { graph.modules.push_back(std::move(info)); });
}

void WatchedModel::tell_before_calls(const model::ModuleRef& module) {
  handles_.push_back(hooks::attach(module, hooks::Kind::forward_pre,
                                   [weak = weak_from_this(), called = &module.module()](hooks::Event& event) {
                                     const auto watched = weak.lock();
                                     if (watched != nullptr)
                                       watched->guarded([&] { watched->before_call_(*called, event); });
                                   }));
}

void WatchedModel::close() noexcept {
  forget_forward();
  if (std::exchange(closed_, true)) return;
  if (!handles_.empty()) --watching;
  guarded([&] {
    hooks::DeferredCompile batch;
    handles_.clear();
    batch.commit();
  });
  compare_parameters();
  if (made_here_) run_->set_state("finished");
  guarded([&] { run_->end(); });
}

void WatchedModel::let_go() noexcept {
  close();
  held_.clear();
  constants_.clear();
  owner_.reset();  // it keeps the model's memory
}

void WatchedModel::leave_to_parent() noexcept {
  forget_forward();
  // TorchScript's hooks stay: threads that the child lacks may hold the locks of its compiler.
  if (!std::exchange(closed_, true) && !scripted_) handles_.clear();
}

/// A forward begins, and perhaps a step. Whether the forward is recorded. With `mutex_`.
bool WatchedModel::open_step(bool trains, bool learns) {
  const bool first = !any_forward_;
  any_forward_ = true;
  const bool idle = learns && !any_backward_ && went_idle();
  const bool opens = first || (!user_steps_ && (any_backward_ ? trains && backward_seen_ : !learns || idle));
  if (opens) {
    idle_ = idle;
    if (!first) ++step_;
    backward_seen_ = callback_queued_ = false;
    run_->reach(step_);
    recording_ = pace_.allows(step_, Pace::Clock::now());
    return recording_;
  }
  // Between two steps of a training, or within a step that is accumulated from several batches.
  return trains ? recording_.load() : pace_.allows_evaluation(step_, Pace::Clock::now());
}

/// The optimizer has changed what was kept at the end of the backward before.
void WatchedModel::compare_parameters() noexcept {
  if (updates_.empty()) return;
  guarded([&] {
    const auto began = Pace::Clock::now();
    updates_.compare(*run_);
    pace_.spend(Pace::Clock::now() - began);
  });
}

void WatchedModel::check_step(std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_VALUE(!any_forward_ || step > step_,
                    "views::explorer::Explorer::step: steps have to grow; got ", step, " after ", step_, ".");
}

void WatchedModel::set_step(std::int64_t step) {
  compare_parameters();
  {
    const std::lock_guard lock(mutex_);
    user_steps_ = true;
    any_forward_ = true;
    step_ = step;
    backward_seen_ = callback_queued_ = false;
    run_->reach(step_);
    recording_ = pace_.allows(step_, Pace::Clock::now());
  }
  tell_file_failure();
}

std::int64_t WatchedModel::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

void WatchedModel::scalar(const std::string& name, double value) {
  if (!made_here_) return;
  run_->add_scalar(name, step(), value);
  tell_file_failure();
}

void WatchedModel::backward_begins() {
  const std::lock_guard lock(mutex_);
  backward_seen_ = any_backward_ = true;
  unanswered_.clear();
  if (!recording_ || callback_queued_) return;
  callback_queued_ = true;
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    if (const auto watched = weak.lock()) watched->end_backward();
  });
}

void WatchedModel::end_backward() {
  const auto began = Pace::Clock::now();
  {
    const std::lock_guard lock(mutex_);
    callback_queued_ = false;
  }
  guarded([&] { record_parameters(true); });
  pace_.spend(Pace::Clock::now() - began);
  {
    const std::lock_guard lock(mutex_);
    pace_.end_record();
  }
  guarded([&] {
    write_pace();
    const auto saving = Pace::Clock::now();
    run_->save();
    pace_.spend_apart(Pace::Clock::now() - saving);
  });
}

/// The explorer's own state on the page.
void WatchedModel::write_pace() {
  const std::lock_guard lock(mutex_);
  const auto now = Pace::Clock::now();
  run_->add_scalar("explorer overhead", step_, pace_.share(now));
  if (step_ > timed_step_) {
    const double seconds = std::chrono::duration<double>(now - timed_).count();
    run_->add_scalar("time per step", step_, seconds / static_cast<double>(step_ - timed_step_));
  }
  timed_step_ = step_;
  timed_ = now;
}

void WatchedModel::record_parameters(bool gradients) {
  const base::RecordingMode quiet;
  std::int64_t at = 0;
  bool known = false;  // from a forward or a backward before, in the same step
  {
    const std::lock_guard lock(mutex_);
    at = step_;
    known = std::exchange(parameters_at_, at) == at;
  }
  for (const Held& one : held_) {
    const std::int32_t call =
        run_->with_graph([&](const Graph& graph) { return graph.first_call(one.module); });
    if (call < 0) continue;
    const auto add = [&](What what, const at::Tensor& tensor) {
      const std::int32_t series = run_->series({call, what, one.position, -1}, one.name);
      if (what != What::parameter || !known) {
        watch::Column column = watch::measure(tensor);
        column.first_step = column.last_step = at;
        run_->add(series, column);
      }
      if (gradients && what == What::parameter) updates_.keep(series, tensor, at);
    };
    if ((options.record() & Parameter) != 0) add(What::parameter, one.tensor);
    if (gradients && (options.record() & ParameterGrad) != 0 && one.tensor.grad().defined())
      add(What::parameter_grad, one.tensor.grad());
  }
}

void WatchedModel::failed(const char* what) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      constexpr std::size_t most = 100;
      if (std::find(errors_.begin(), errors_.end(), what) != errors_.end()) return;
      if (errors_.size() < most) errors_.emplace_back(what);
    }
    if (options.on_error()) options.on_error()(what);
  } catch (...) {
    // There is no caller to report it to.
  }
}

/// The model goes on, and so does the page; only the file ends. Without `mutex_`.
void WatchedModel::tell_file_failure() noexcept {
  const std::string failure = run_->failure();
  if (!failure.empty()) failed(failure.c_str());
}

std::vector<std::string> WatchedModel::errors() const {
  const std::lock_guard lock(mutex_);
  return errors_;
}

}  // namespace torchtap::views::explorer::detail
