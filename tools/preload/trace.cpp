#include "trace.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <torchtap/model/detail/interposed.hpp>
#include <torchtap/model/walk.hpp>

#include "../message.hpp"
#include "linked.hpp"

namespace torchtap::preload {
namespace {

namespace fs = std::filesystem;
namespace trace = views::trace;
using Lock = std::lock_guard<std::recursive_mutex>;

std::string program_name() {
  std::string name;
  std::ifstream stream("/proc/self/comm");
  std::getline(stream, name);
  return name;
}

/// The memory of a tensor; null if it has none.
const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

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
  uncalled_.clear();
  const auto* calls = model::detail::interposed_calls();
  for (const model::ModuleRef& module : modules) {
    if (calls != nullptr && calls->cover(module.module())) uncalled_.emplace(&module.module(), module);
  }
}

void Trace::called(torch::nn::Module& module) {
  const Lock lock(mutex_);
  if (state_ == State::logging && operations_ > kMost && thread_ == std::this_thread::get_id()) end();
  if (state_ == State::waiting && (tracer_ == nullptr || uncalled_.count(&module) != 0)) begin(module);
  if (state_ == State::logging) uncalled_.erase(&module);
}

void Trace::begin(torch::nn::Module& module) {
  std::vector<model::ModuleRef> alone;
  if (tracer_ == nullptr) {  // it belongs to no model that is known
    alone = model::walk_modules(module);
    if (!alone.front().reachable()) return;
    tracer_ = std::make_shared<trace::Tracer>(options());
  }
  const model::ModuleRef first = alone.empty() ? uncalled_.at(&module) : alone.front();
  first_ = hooks::attach(first, hooks::Kind::forward_pre, [this](hooks::Event& event) {
    guarded([&] {
      const Lock lock(mutex_);
      if (state_ != State::logging || thread_ != std::this_thread::get_id()) return false;
      if (!has_inputs_) {
        take_inputs(event);
      } else if (begins_again(event)) {
        end();
      }
      return true;
    });
  });
  thread_ = std::this_thread::get_id();
  scope_ = std::make_unique<operations::Scope>([this](operations::Event& event) { follow(event); });
  tracer_->start();
  state_ = State::logging;
  report_.attached = true;
  tell(false);
}

void Trace::take_inputs(const hooks::Event& event) {
  const operations::Unseen unseen;
  has_inputs_ = true;
  for (std::int64_t i = 0; i < event.inputs().size(); ++i) {
    const at::Tensor& tensor = event.inputs()[i];
    if (!tensor.defined()) continue;
    tracer_->input(tensor);
    add_computed(tensor);
  }
}

bool Trace::begins_again(const hooks::Event& event) const {
  if (!uncalled_.empty()) return false;
  for (std::int64_t i = 0; i < event.inputs().size(); ++i) {
    if (computed_.count(memory_of(event.inputs()[i])) != 0) return false;
  }
  return true;
}

/// Notes what is computed from the inputs of the pass.
void Trace::follow(operations::Event& event) {
  const bool from_inputs = guarded([&] { return reads_computed(event); });
  event.run();
  if (!from_inputs) return;
  guarded([&] {
    const Lock lock(mutex_);
    for (const c10::IValue& result : event.results()) {
      operations::for_each_tensor(result, [&](const at::Tensor& tensor) { add_computed(tensor); });
    }
    return true;
  });
}

bool Trace::reads_computed(const operations::Event& event) {
  const Lock lock(mutex_);
  ++operations_;
  bool found = false;
  for (const c10::IValue& argument : event.arguments()) {
    operations::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      found = found || computed_.count(memory_of(tensor)) != 0;
    });
  }
  return found;
}

void Trace::add_computed(const at::Tensor& tensor) {
  const auto* memory = memory_of(tensor);
  if (memory != nullptr) computed_.emplace(memory, tensor.storage().getWeakStorageImpl());
}

// LibTorch restores the thread's state when the function of the backward returns. So the thread goes on
// asking the scopes, which are closed; that costs 0.1 us an operation.
void Trace::backward() {
  const Lock lock(mutex_);
  if (state_ == State::logging && thread_ == std::this_thread::get_id()) end();
}

c10::IValue Trace::script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                          const std::function<c10::IValue()>& original) {
  std::shared_ptr<trace::Tracer> tracer;
  guarded([&] {
    tracer = begin_script(method, arguments);
    return true;
  });
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
  guarded([&] {
    tracer->output(result);
    return true;
  });
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
  return tracer_;
}

void Trace::end_script(trace::Tracer& tracer, const std::string& error) {
  tracer.stop(error);
  guarded([&] {
    const Lock lock(mutex_);
    if (state_ == State::logging) end();
    return true;
  });
}

void Trace::end() {
  state_ = State::done;
  first_.remove();
  tracer_->stop();
  scope_.reset();
  computed_.clear();
  uncalled_.clear();
  try {
    if (operations_ > kMost) {
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
    child->uncalled_ = std::move(uncalled_);
    child->tree_ = tree_;
    return child;
  }
  child->state_ = State::done;
  if (state_ != State::logging) return child;
  child->guarded([&] {
    first_.remove();
    if (thread_ != std::this_thread::get_id()) return false;
    tracer_->stop();
    scope_.reset();
    return true;
  });
  // Other threads, which the child lacks, may hold its locks: it is abandoned, not destroyed.
  new std::shared_ptr<trace::Tracer>(std::move(tracer_));
  static_cast<void>(scope_.release());
  return child;
}

void Trace::tell(bool ended) {
  report_.ended = ended;
  report_.uses_torch = program_uses_torch();
  if (write(report_, config_.reports) || !ended) return;
  // The launcher is gone, so print the notes here.
  for (const auto& line : report_.notes) std::cerr << "torchtap: " << line << std::endl;
}

}  // namespace torchtap::preload
