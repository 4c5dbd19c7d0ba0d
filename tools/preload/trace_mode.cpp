#include "trace_mode.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>

#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/model/walk.hpp>

#include "packed_entries.hpp"
#include "publishing.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

namespace trace = views::trace;

}  // namespace

TraceMode::TraceMode(const Config& config)
    : Mode(config),
      models_({[] { return std::make_shared<FoundModel>(); },
               [](const model::ModuleRef& module) {
                 const auto* calls = model::extend::interposed_calls();
                 return calls != nullptr && calls->cover(module.module());
               },
               [](const std::string&) {}}) {}

trace::TraceOptions TraceMode::options() const {
  trace::TraceOptions options;
  if (config_.keep.size() == 1 && config_.keep.front() == "none") return options;
  if (config_.keep.empty() || (config_.keep.size() == 1 && config_.keep.front() == "all")) {
    return options.save(trace::Save::all);
  }
  return options.save(config_.keep);
}

void TraceMode::found_root(const torch::nn::Module& root) {
  const Lock lock(mutex_);
  if (state_ == State::logging && thread_ == std::this_thread::get_id()) end();
  if (state_ != State::waiting) return;
  models_.let_go();
  const auto found = models_.found(root);
  if (found == nullptr || (model_ != nullptr && model_->modules.size() > found->modules.size())) return;
  model_ = found;
  tracer_.reset();  // parameters may have been replaced since
  tracer_ = std::make_shared<trace::Tracer>(const_cast<torch::nn::Module&>(root), options());
}

void TraceMode::called(torch::nn::Module& module) {
  const Lock lock(mutex_);
  if (state_ == State::logging && pass_.operations() > kMost && thread_ == std::this_thread::get_id()) end();
  if (state_ == State::waiting && (model_ == nullptr || model_->visible.count(&module) != 0)) begin(module);
  if (state_ == State::logging) pass_.called(module);
}

void TraceMode::begin(torch::nn::Module& module) {
  std::vector<model::ModuleRef> alone;
  if (model_ == nullptr) {  // it belongs to no model that is known
    alone = model::walk_modules(module);
    if (!alone.front().reachable()) return;
    tracer_ = std::make_shared<trace::Tracer>(options());
  }
  const model::ModuleRef first = model_ == nullptr ? alone.front() : model_->visible.at(&module);
  pass_.begin(model_ == nullptr ? Pass::Modules() : model_->expected());
  first_ = hooks::attach(first, hooks::Kind::forward_pre,
                         [this](hooks::Event& event) { guarded([&] { called_first(inputs_of(event)); }); });
  thread_ = std::this_thread::get_id();
  scope_ = std::make_unique<operations::Scope>([this](operations::Event& event) { pass_.follow(event); });
  tracer_->start();
  state_ = State::logging;
  report_.attached = true;
  tell(false);
  publish_at_end();
}

void TraceMode::called_first(const std::vector<at::Tensor>& inputs) {
  const Lock lock(mutex_);
  if (state_ != State::logging || thread_ != std::this_thread::get_id()) return;
  const operations::Unseen unseen;
  if (pass_.begins_again(inputs)) return end();
  if (std::exchange(has_inputs_, true)) return;
  for (const at::Tensor& input : inputs) tracer_->input(input);
}

// LibTorch restores the thread's state when the function of the backward returns. So the thread continues to
// ask the scopes, which are closed; that costs 0.1 us an operation.
void TraceMode::backward(bool begins) {
  if (!begins) return;
  const Lock lock(mutex_);
  if (state_ == State::logging && thread_ == std::this_thread::get_id()) end();
}

c10::IValue TraceMode::script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                              const std::function<c10::IValue()>& original) {
  std::shared_ptr<trace::Tracer> tracer;
  guarded([&] { tracer = begin_script(method, arguments); });
  if (tracer == nullptr) return original();
  c10::IValue result;
  try {
    result = original();
  } catch (const std::exception& error) {
    end_script(*tracer, tools::message_of(error));
    throw;
  } catch (...) {
    end_script(*tracer, "an exception that is no std::exception");
    throw;
  }
  guarded([&] { tracer->output(result); });
  end_script(*tracer, "");
  return result;
}

/// Null if another pass is logged, or was.
std::shared_ptr<trace::Tracer> TraceMode::begin_script(const torch::jit::Method& method,
                                                       const std::vector<c10::IValue>& arguments) {
  const Lock lock(mutex_);
  if (state_ != State::waiting) return nullptr;
  state_ = State::done;  // if the method cannot be logged
  tracer_ = std::make_shared<trace::Tracer>(selectors::modules(method.owner(), method.name()), options());
  if (model::walk_modules(method.owner(), method.name()).front().frozen()) note(about_frozen("named"));
  for (const c10::IValue& argument : arguments) tracer_->input(argument);
  tracer_->start();
  state_ = State::logging;
  thread_ = {};  // nothing else ends it
  report_.attached = true;
  tell(false);
  publish_at_end();
  return tracer_;
}

void TraceMode::end_script(trace::Tracer& tracer, const std::string& error) {
  tracer.stop(error);
  guarded([&] {
    const Lock lock(mutex_);
    if (state_ == State::logging) end();
  });
}

void TraceMode::end() {
  state_ = State::done;
  first_.remove();
  tracer_->stop();
  scope_.reset();
  model_.reset();
  try {
    if (pass_.operations() > kMost) {
      report_.notes.push_back(
          c10::str("the pass was cut off after ", kMost, " operations; its end could not be seen."));
    }
    save(finished());
  } catch (const std::exception& error) {
    report_.notes.push_back("the trace cannot be handed over: " + tools::message_of(error));
    report_.lost = true;
  }
  tracer_.reset();
  tell(false);
}

/// Names in --keep that find nothing are said, and left out.
trace::History TraceMode::finished() {
  std::vector<std::string> names = tracer_->options().names();
  for (;;) {
    try {
      return tracer_->finish();
    } catch (const c10::IndexError& error) {
      const std::string message = tools::message_of(error);
      const auto wrong = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
        return message.find("\"" + name + "\" finds nothing") != std::string::npos;
      });
      if (wrong == names.end()) throw;
      report_.notes.push_back(message);
      names.erase(wrong);
      tracer_->options().save(names);
    }
  }
}

void TraceMode::save(const trace::History& history) {
  Publishing::here()->results([&] { Publishing::here()->whole(pack(history.entries())); });
  report_.samples = history.size();
  report_.modules = static_cast<std::int64_t>(history.modules().size());
  if (!history.unreached_modules().empty()) {
    std::string some;
    constexpr std::size_t kSome = 3;
    const auto& paths = history.unreached_modules();
    for (std::size_t i = 0; i < std::min(paths.size(), kSome); ++i) {
      some += (some.empty() ? "" : ", ") + (paths[i].empty() ? std::string("the model itself") : paths[i]);
    }
    report_.notes.push_back(
        c10::str("the trace does not say which operations ran in ", some,
                 paths.size() > kSome ? c10::str(" and ", paths.size() - kSome, " others") : "",
                 ", as their forward is compiled into the program."));
  }
}

void TraceMode::finish() noexcept {
  const Lock lock(mutex_);
  try {
    if (state_ == State::logging) end();
    state_ = State::done;
    tell(true);
  } catch (...) {  // out of memory at the very end
  }
}

TraceMode* TraceMode::for_child() {
  auto* child = new TraceMode(config_);
  if (state_ == State::waiting) {
    child->tracer_ = std::move(tracer_);
    child->model_ = std::move(model_);
    child->models_.inherit(models_);
    return child;
  }
  child->state_ = State::done;
  if (state_ != State::logging) return child;
  child->guarded([&] {
    first_.remove();
    if (thread_ != std::this_thread::get_id()) return;
    tracer_->stop();
    scope_.reset();
  });
  // Other threads, which the child lacks, may hold its locks: it is abandoned, not destroyed.
  new std::shared_ptr<trace::Tracer>(std::move(tracer_));
  static_cast<void>(scope_.release());
  return child;
}

}  // namespace torchtap::tools::preload
