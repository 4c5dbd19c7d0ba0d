#include "trace.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>

#include <torchtap/model/detail/interposed.hpp>
#include <torchtap/model/walk.hpp>

#include "../message.hpp"
#include "ending.hpp"
#include "linked.hpp"

namespace torchtap::preload {
namespace {

namespace fs = std::filesystem;
namespace trace = views::trace;
using Lock = std::lock_guard<std::recursive_mutex>;

}  // namespace

Trace::Trace(const Config& config) : config_(config) {
  report_.process = ::getpid();
  report_.program = program_name();
  if (report_.process == config_.process) tell(false);
}

trace::Options Trace::options() const {
  trace::Options options;
  if (config_.keep.size() == 1 && config_.keep.front() == "none") return options;
  if (config_.keep.empty() || (config_.keep.size() == 1 && config_.keep.front() == "all")) {
    return options.save(trace::Save::all);
  }
  return options.save(config_.keep);
}

void Trace::found_root(const torch::nn::Module& root) {
  const Lock lock(mutex_);
  if (state_ == State::logging && thread_ == std::this_thread::get_id()) end();
  if (state_ != State::waiting) return;
  // Not const: hooks are attached to its modules.
  auto& model = const_cast<torch::nn::Module&>(root);
  const std::vector<model::ModuleRef> modules = model::walk_modules(model);
  if (modules.size() < tree_) return;  // a part of it, or a smaller model
  tree_ = modules.size();
  tracer_.reset();  // parameters may have been replaced since
  tracer_ = std::make_shared<trace::Tracer>(model, options());
  visible_.clear();
  const auto* calls = model::detail::interposed_calls();
  for (const model::ModuleRef& module : modules) {
    if (calls != nullptr && calls->cover(module.module())) visible_.emplace(&module.module(), module);
  }
}

void Trace::called(torch::nn::Module& module) {
  const Lock lock(mutex_);
  if (state_ == State::logging && pass_.operations() > kMost && thread_ == std::this_thread::get_id()) end();
  if (state_ == State::waiting && (tracer_ == nullptr || visible_.count(&module) != 0)) begin(module);
  if (state_ == State::logging) pass_.called(module);
}

void Trace::begin(torch::nn::Module& module) {
  std::vector<model::ModuleRef> alone;
  if (tracer_ == nullptr) {  // it belongs to no model that is known
    alone = model::walk_modules(module);
    if (!alone.front().reachable()) return;
    tracer_ = std::make_shared<trace::Tracer>(options());
  }
  const model::ModuleRef first = alone.empty() ? visible_.at(&module) : alone.front();
  Pass::Modules seen;
  for (const auto& entry : visible_) seen.insert(entry.first);
  pass_.begin(std::move(seen));
  first_ = hooks::attach(first, hooks::Kind::forward_pre,
                         [this](hooks::Event& event) { guarded([&] { called_first(inputs_of(event)); }); });
  thread_ = std::this_thread::get_id();
  scope_ = std::make_unique<operations::Scope>([this](operations::Event& event) { pass_.follow(event); });
  tracer_->start();
  state_ = State::logging;
  report_.attached = true;
  tell(false);
  watch(0);
}

void Trace::called_first(const std::vector<at::Tensor>& inputs) {
  const Lock lock(mutex_);
  if (state_ != State::logging || thread_ != std::this_thread::get_id()) return;
  const operations::Unseen unseen;
  if (pass_.begins_again(inputs)) return end();
  if (std::exchange(has_inputs_, true)) return;
  for (const at::Tensor& input : inputs) tracer_->input(input);
}

// LibTorch restores the thread's state when the function of the backward returns. So the thread goes on
// asking the scopes, which are closed; that costs 0.1 us an operation.
void Trace::backward(bool begins) {
  if (!begins) return;
  const Lock lock(mutex_);
  if (state_ == State::logging && thread_ == std::this_thread::get_id()) end();
}

c10::IValue Trace::script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
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
std::shared_ptr<trace::Tracer> Trace::begin_script(const torch::jit::Method& method,
                                                   const std::vector<c10::IValue>& arguments) {
  const Lock lock(mutex_);
  if (state_ != State::waiting) return nullptr;
  state_ = State::done;  // if the method cannot be logged
  tracer_ = std::make_shared<trace::Tracer>(method.owner(), options(), method.name());
  for (const c10::IValue& argument : arguments) tracer_->input(argument);
  tracer_->start();
  state_ = State::logging;
  thread_ = {};  // nothing else ends it
  report_.attached = true;
  tell(false);
  watch(0);
  return tracer_;
}

void Trace::end_script(trace::Tracer& tracer, const std::string& error) {
  tracer.stop(error);
  guarded([&] {
    const Lock lock(mutex_);
    if (state_ == State::logging) end();
  });
}

void Trace::end() {
  state_ = State::done;
  first_.remove();
  tracer_->stop();
  scope_.reset();
  visible_.clear();
  try {
    if (pass_.operations() > kMost) {
      report_.notes.push_back(
          c10::str("the pass was cut off after ", kMost, " operations; its end could not be seen."));
    }
    save(finished());
  } catch (const std::exception& error) {
    report_.notes.push_back("the trace could not be saved: " + tools::message_of(error));
  }
  tracer_.reset();
}

/// Names in --keep that find nothing are said, and left out.
trace::History Trace::finished() {
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

void Trace::save(trace::History history) {
  std::string directory = config_.save;
  const bool itself = report_.process == config_.process;
  if (!itself) {
    const std::string base = config_.save + "-" + std::to_string(report_.process);
    directory = base;
    for (int i = 2; fs::exists(directory); ++i) directory = base + "-" + std::to_string(i);
  }
  history.save(directory, storage::SaveOptions().mkdir(true).overwrite(itself && config_.overwrite));
  report_.directory = directory;
  report_.saved_at = std::time(nullptr);
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

void Trace::note(const std::string& text) {
  const Lock lock(mutex_);
  report_.notes.push_back(text);
}

void Trace::finish() noexcept {
  const Lock lock(mutex_);
  try {
    if (state_ == State::logging) end();
    state_ = State::done;
    tell(true);
  } catch (...) {  // out of memory at the very end
  }
}

Trace* Trace::for_child() {
  auto* child = new Trace(config_);
  if (state_ == State::waiting) {
    child->tracer_ = std::move(tracer_);
    child->visible_ = std::move(visible_);
    child->tree_ = tree_;
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

void Trace::tell(bool ended) {
  preload::tell(report_, config_.reports, ended);
}

}  // namespace torchtap::preload
