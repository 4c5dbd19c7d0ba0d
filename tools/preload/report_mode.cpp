#include "report_mode.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/model/walk.hpp>

#include "agent.hpp"
#include "models.hpp"
#include "packed_entries.hpp"
#include "publishing.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

namespace report = views::report;
using torch::nn::Module;

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

report::ReportOptions options_for(const std::vector<model::ModuleRef>& modules) {
  const bool elsewhere = std::any_of(modules.begin(), modules.end(), [](const model::ModuleRef& module) {
    const std::vector<model::Held> held = model::held_by(module);
    return std::any_of(held.begin(), held.end(),
                       [](const model::Held& one) { return !one.buffer && !one.tensor.device().is_cpu(); });
  });
  return report::ReportOptions().synchronize(elsewhere);
}

}  // namespace

ReportMode::ReportMode(const Config& config)
    : Mode(config),
      models_(
          {[] { return std::make_shared<Model>(); },
           [this](const model::ModuleRef& module) {
             const auto* calls = model::extend::interposed_calls();
             const bool seen = calls != nullptr && calls->cover(module.module());
             if (!seen && module.has_forward()) report_.compiled_in.insert(module.type());
             return seen;
           },
           [this](const std::string& text) { note(text); }, "measured",
           [this](const std::shared_ptr<FoundModel>& model) { return bury(static_cast<Model&>(*model)); }}) {}

void ReportMode::found_root(const Module& root) {
  const Lock lock(mutex_);
  if (done_) return;
  if (open_ && mine() && !in_backward_) set_phase(report::Phase::between);
  models_.let_go();
  models_.found(root);
}

void ReportMode::called(Module& module) {
  const Lock lock(mutex_);
  if (done_) return;
  FoundModel* const found = models_.of(module);
  if (found == nullptr) return models_.let_go();
  auto& model = static_cast<Model&>(*found);
  const auto seen = model.visible.find(&module);
  if (seen == model.visible.end()) return;
  join(model, &module, &seen->second);
  if (mine()) pass_.called(module);
}

/// A module, or method, of the model is called: the step of this thread begins, continues, or is followed by
/// the next one.
void ReportMode::join(Model& model, const void* first, const model::ModuleRef* module,
                      const torch::jit::Method* method) {
  if (open_ && !mine()) {
    views::watch::ThreadCallback::sweep();  // if the step was this thread's once
    if (!rests()) {
      other_thread_waits_ = true;
      return note(
          "forwards that began while another thread was in a pass are no repeats of their own: threads are "
          "measured in turns.");
    }
    stop();
  }
  const bool failed = in_backward_ && running_nodes_ == 0;
  if (open_ && (passed_ || failed)) next_step(model, first);
  // Another thread may have exchanged a model since, whose pass has no other end then.
  const bool one_is_gone =
      std::any_of(step_.begin(), step_.end(), [&](const Model* one) { return one != &model && one->gone(); });
  if (open_ && one_is_gone) {
    stop();
    models_.let_go();
  }
  note_event();
  if (!open_) begin_step(model, first);
  if (model.running && model.over) end_repeat(model);
  if (!model.running) begin_repeat(model, first, module, method);
}

/// Whether the thread of the step, which may wait for others, is between passes: its pass is over, or has
/// called all of its modules and can have no backward, or nothing happened for a second.
bool ReportMode::rests() const {
  if (passed_) return !in_backward_;
  const bool runs = std::any_of(step_.begin(), step_.end(), [](const Model* model) {
    return model->recording.has_value() && model->recording->in_call();
  });
  if (in_backward_ || runs) return false;
  return (!gradients_ && !pass_.expects_others()) ||
         std::chrono::steady_clock::now() - last_event_ > std::chrono::seconds(1);
}

void ReportMode::note_event() {
  ++events_;
  last_event_ = std::chrono::steady_clock::now();
}

/// Goes on with the report of a model of the same paths and types that is gone, or begins another one.
void ReportMode::measure(Model& model, const std::vector<model::ModuleRef>& modules) {
  model.measured = resting_.take(kind_of(modules));
  if (model.measured != nullptr) return model.measured->report.follow(modules);
  model.measured = std::make_unique<Measured>(modules, options_for(modules));
}

void ReportMode::begin_step(Model& model, const void* first) {
  thread_ = std::this_thread::get_id();
  open_ = true;
  first_called_ = first;
  first_model_ = std::static_pointer_cast<Model>(model.shared_from_this());
  begin_pass();
  scope_ = std::make_unique<operations::Scope>([this](operations::Event& event) {
    if (follows_ && serial_ == generation()) return pass_.follow(event);
    event.run();
  });
  callback_.emplace(at::addThreadLocalCallback(
      at::RecordFunctionCallback(node_begins, node_ends).scopes({at::RecordScope::BACKWARD_FUNCTION})));
  base::of_thread<ThreadEnd>().action = [this] {
    const Lock lock(mutex_);
    if (mine()) stop();
  };
}

void ReportMode::begin_pass() {
  pass_.begin(first_model_->expected());
  passed_ = in_backward_ = false;
  first_calls_ = 0;
  gradients_ = at::GradMode::is_enabled();
  follows_ = !gradients_ || calls_before_backward_ == 0;
}

void ReportMode::end_pass() {
  for (const Module* module : pass_.called_modules()) {
    if (first_model_->visible.count(module) != 0) first_model_->called.insert(module);
  }
}

void ReportMode::begin_repeat(Model& model, const void* first, const model::ModuleRef* module,
                              const torch::jit::Method* method) {
  if (model.recording.has_value()) {
    model.recording->next();
  } else {
    if (model.measured == nullptr) {
      measure(model,
              method == nullptr ? model.modules : model::walk_modules(method->owner(), method->name()));
    }
    model.first = first;
    if (module != nullptr) {
      model.first_hook = hooks::attach(*module, hooks::Kind::forward_pre,
                                       [this, weak = model.weak_from_this()](hooks::Event& event) {
                                         const auto its = std::static_pointer_cast<Model>(weak.lock());
                                         if (its != nullptr && serial_ == generation())
                                           called_first(*its, inputs_of(event));
                                       });
    }
    model.recording.emplace(model.measured->report.record());
    step_.push_back(&model);
  }
  model.running = true;
  model.over = false;
  model.ran = true;
  ++model.measured->unpublished;
  Publishing::here()->call();
  if (model.measured->number.has_value()) return;
  model.measured->number = ran_++;
  report_.attached = true;
  tell(false);
  publish_at_end();
}

void ReportMode::called_first(Model& model, const std::vector<at::Tensor>& inputs) {
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
    pass_.called(*static_cast<const Module*>(first_called_));  // in the new pass
  });
}

/// The pass is over, and the model is called for the next one. The repeats of other models continue: a
/// backward may still reach them.
void ReportMode::next_step(Model& model, const void* first) {
  end_pass();
  if (other_thread_waits_.exchange(false) || (model.recording.has_value() && first != model.first)) {
    return stop();
  }
  set_phase(report::Phase::between);
  for (Model* one : step_) one->over = true;
  first_called_ = first;
  first_model_ = std::static_pointer_cast<Model>(model.shared_from_this());
  begin_pass();
}

void ReportMode::end_repeat(Model& model) noexcept {
  if (model.recording.has_value()) model.recording->end();
  if (!std::exchange(model.running, false) || !Publishing::here()->due() || serial_ != generation()) return;
  guarded([&] { publish(*model.measured); });
}

void ReportMode::end_repeats() noexcept {
  for (Model* model : step_) end_repeat(*model);
}

void ReportMode::stop() noexcept {
  end_repeats();
  while (!step_.empty()) {
    step_.back()->recording.reset();
    step_.back()->first_hook.remove();
    step_.back()->first = nullptr;
    step_.pop_back();
  }
  if (!open_) return;
  end_pass();
  callback_.reset();
  scope_.reset();
  pass_.forget();
  open_ = in_backward_ = false;
  thread_ = {};
}

void ReportMode::set_phase(report::Phase phase) {
  passed_ = phase == report::Phase::between;
  for (Model* model : step_) {
    // Of a backward, an earlier pass's model sees only the nodes that the engine runs for it.
    if (model->running) model->recording->phase(model->over ? report::Phase::between : phase);
  }
}

void ReportMode::backward(bool begins) {
  running_nodes_ += begins ? 1 : -1;
  if (!begins) return;
  const Lock lock(mutex_);
  note_event();
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

c10::IValue ReportMode::script(const torch::jit::Method& method,
                               const std::vector<c10::IValue>& /*arguments*/,
                               const std::function<c10::IValue()>& original) {
  bool begins = false;
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    FoundModel* const found = models_.of(method);
    if (found == nullptr) return;
    auto& model = static_cast<Model&>(*found);
    begins = !open_ || !mine() || passed_;
    join(model, model.object, nullptr, &method);
    begins = begins && mine() && first_called_ == model.object;
  });
  struct End {
    std::function<void()> action;
    ~End() { action(); }
  };
  const End end{[&] {
    if (begins) guarded([&] { end_script(); });
  }};
  return original();
}

/// A method of TorchScript that began a pass returns: the pass is over.
void ReportMode::end_script() {
  const Lock lock(mutex_);
  if (done_ || !open_ || !mine() || passed_ || in_backward_) return;
  end_pass();
  set_phase(report::Phase::between);
  if (!gradients_) end_repeats();  // nothing of it can follow
}

/// A model that the program destroyed: keeps what was measured, and frees its parameters.
bool ReportMode::bury(Model& model) {
  if (model.recording.has_value()) {
    if (!mine() && !rests()) return false;  // its own thread will do it
    stop();
  }
  model.measured->report.let_go();
  publish(*model.measured);
  resting_.add(std::move(model.measured));
  return true;
}

/// Publishes what was measured of a model, of which no repeat runs.
void ReportMode::publish(Measured& measured) {
  const auto publish = [&] {
    const report::Measurements results = measured.report.results();
    storage::Entry entry;
    entry.type = results.root.type;
    entry.samples = results.repeats;
    entry.value = core::Value(report::json(results));
    Publishing::here()->part(*measured.number, pack(entry));
  };
  Publishing::here()->results(publish, &measured.unpublished);
}

void ReportMode::finish() noexcept {
  guarded([&] {
    const Lock lock(mutex_);
    if (done_) return;
    if (mine()) {
      stop();
    } else {
      end_repeats();
    }
    done_ = true;
    report_.ran_types = models_.strangers();
    if (ran_ != 0 && !report_.ran_types.empty()) note(models_.about_strangers());  // else the launcher does
    for (const auto& found : models_.all()) {
      auto& model = static_cast<Model&>(*found);
      if (model.ran) publish(*model.measured);
    }
    tell(true);
  });
}

ReportMode* ReportMode::for_child() {
  auto* child = new ReportMode(config_);
  base::of_thread<ThreadEnd>().action = nullptr;
  child->guarded([&] {
    if (mine()) stop();
    child->models_.inherit(models_);
  });
  return child;
}

}  // namespace torchtap::tools::preload
