// The agent: records in a program that does not mention torchtap. It is loaded by LD_PRELOAD, or by the
// waiter, together with libtorchtap_transparent, configured by the environment, and saves when the program
// ends.
#include "agent.hpp"

#include <ATen/record_function.h>
#include <cereal/archives/json.hpp>
#include <pthread.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>

#include <torchtap/hooks/extend/called_module.hpp>
#include <torchtap/hooks/extend/own_calls.hpp>

#include "config.hpp"
#include "monitor_mode.hpp"
#include "process_end.hpp"
#include "report_mode.hpp"
#include "terminal/message.hpp"
#ifdef TORCHTAP_HAVE_EXPLORER
#include "explore_mode.hpp"
#endif
#include "linked_libraries.hpp"
#include "recording_session.hpp"
#include "trace_mode.hpp"
#include "waiter.hpp"

namespace torchtap::tools::preload {
namespace {

using torch::nn::Module;

using hooks::extend::OwnCalls;

/// Never destroyed: threads may call modules while the process ends.
struct Agent {
  explicit Agent(const Config& its) : config(its) {
    if (config.mode == "trace") {
      mode = new TraceMode(config);
    } else if (config.mode == "report") {
      mode = new ReportMode(config);
    } else if (config.mode == "monitor" || config.mode == "learn") {
      mode = new MonitorMode(config);
#ifdef TORCHTAP_HAVE_EXPLORER
    } else if (config.mode == "explore") {
      mode = new ExploreMode(config);
#endif
    } else {
      session = new Session(config);
    }
  }

  Config config;
  std::atomic<Session*> session{nullptr};
  Mode* mode = nullptr;  // instead of a session
  /// The session is still the parent's. It is replaced lazily, so that a child which never calls a module
  /// costs nothing.
  std::atomic<bool> forked{false};
  std::mutex beginning;
  std::atomic<pid_t> process{::getpid()};  // not a child of vfork, which runs in its parent's memory
  /// The process is about to end and all is saved: nothing is done in its calls any more.
  std::atomic<bool> over{false};
  std::atomic<bool> called_later{false};  // by code that runs at the program's end
};

Agent* agent = nullptr;
std::atomic<std::uint64_t> current_generation{1};

/// This process's session. The parent's session is never destroyed: a thread that the child lacks may have
/// been using it.
Session& session() {
  if (agent->forked.load(std::memory_order_acquire)) {
    const std::lock_guard lock(agent->beginning);
    if (agent->forked.load(std::memory_order_relaxed)) {
      agent->session = new Session(agent->config, agent->session.load());
      agent->forked.store(false, std::memory_order_release);
    }
  }
  return *agent->session.load(std::memory_order_acquire);
}

bool is_own_process() noexcept {
  return agent != nullptr && agent->mode == nullptr && !agent->forked &&
         agent->session.load()->process() == ::getpid();
}

bool has_mode() noexcept {
  return agent != nullptr && agent->mode != nullptr;
}

/// Whether calls are still seen.
bool observes() noexcept {
  return agent != nullptr && !agent->over.load(std::memory_order_acquire);
}

/// Does something with the mode. The program continues if that fails.
template <class Function>
void with_mode(Function&& function) noexcept {
  const OwnCalls own;
  try {
    function(*agent->mode);
  } catch (const std::exception& error) {
    agent->mode->note(tools::message_of(error));
  }
}

void meet(const std::function<bool(Session&)>& meeting) {
  const OwnCalls own;
  try {
    if (!meeting(session())) return;
    session().begin();
    watch(agent->config.every);
  } catch (const std::exception& error) {
    session().note(tools::message_of(error));  // the program's call continues
  }
}

void on_called_module(Module& module) {
  if (!observes()) {
    agent->called_later.store(true, std::memory_order_relaxed);
    return;
  }
  if (agent->mode != nullptr) return with_mode([&](Mode& mode) { mode.called(module); });
  meet([&](Session& session) { return session.meet(module); });
}

/// The method that runs; none for a function that belongs to no module.
std::optional<torch::jit::Method> method_of(torch::jit::GraphFunction& function,
                                            const std::vector<c10::IValue>& stack) {
  if (stack.empty() || !stack.front().isModule()) return std::nullopt;
  const auto self = stack.front().toObject();
  if (self->type()->findMethod(function.name()) != &function) return std::nullopt;
  return torch::jit::Method(self, &function);
}

/// Hides a backward from a trace, whichever thread it runs in.
struct Hidden : at::ObserverContext {
  operations::Unseen unseen;
};

std::unique_ptr<at::ObserverContext> on_backward(const at::RecordFunction& /*function*/) {
  if (!observes() || OwnCalls::here()) return nullptr;
  backward(true);
  return std::make_unique<Hidden>();
}

void after_backward(const at::RecordFunction& /*function*/, at::ObserverContext* /*hidden*/) {}

std::terminate_handler former_terminate = nullptr;

void on_terminate() {
  end_badly();
  if (former_terminate != nullptr) former_terminate();
  std::abort();
}

// Locks that a thread may hold must be free while the process forks, as that thread does not exist in the
// child. The registry registered its handlers before these, so they run after them, since it is locked after
// the session. The parent's session stays locked in the child, which does not use it.
void before_fork() {
  if (agent->mode != nullptr) return agent->mode->lock();
  agent->beginning.lock();
  if (!agent->forked) agent->session.load()->lock();
}

void after_fork() {
  if (agent->mode != nullptr) return agent->mode->unlock();
  if (!agent->forked) agent->session.load()->unlock();
  agent->beginning.unlock();
}

void in_child() {
  ++current_generation;
  agent->process = ::getpid();
  agent->over = false;
  if (agent->mode != nullptr) {
    agent->mode = agent->mode->for_child();
    return forget_watch();
  }
  agent->beginning.unlock();
  agent->forked = true;
  forget_watch();
}

/// Runs among the last functions of a normal end. It is the first to save at exits inside of the C library
/// (`err`, the last thread's end), which call no function of torchtap.
void at_end() {
  end_normally();
  if (!is_active() || !agent->called_later) return;
  Report report = read_report(agent->config.reports, ::getpid());
  if (report.process == 0) return;  // the launcher is gone
  report.notes.emplace_back(
      "modules that were called after main had returned, or exit had been called, are left out.");
  tell(report, agent->config.reports, true);
}

/// Leaves a report at once. If no other follows, the process was killed, or ran a program without us.
void report_start(const Config& config) {
  if (read_report(config.reports, ::getpid()).attached) return;  // of the program that it was before an exec
  Report report;
  report.process = ::getpid();
  report.program = program_name();
  tell(report, config.reports, false);
}

[[gnu::constructor]] void start() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return;
  const OwnCalls own;
  try {
    Config config;
    std::istringstream stream(text);
    cereal::JSONInputArchive archive(stream);
    config.serialize(archive);
    ::setenv("LD_PRELOAD", config.libraries.c_str(), 1);
    ::unsetenv(kStartedAgain);
    hooks::extend::prepare();  // its fork handlers go before the agent's
    report_start(config);
    agent = new Agent(config);
  } catch (const c10::Error& error) {
    std::cerr << "torchtap: " << error.what_without_backtrace() << std::endl;
    std::_Exit(2);
  } catch (const std::exception& error) {
    std::cerr << "torchtap: the configuration in TORCHTAP_PRELOAD cannot be read: " << error.what()
              << std::endl;
    std::_Exit(2);
  }
  await_ends();
  ::pthread_atfork(before_fork, after_fork, in_child);
  std::atexit(at_end);
  std::at_quick_exit(finish);
  former_terminate = std::set_terminate(on_terminate);
  if (has_mode() && agent->mode->hides_backward()) {
    at::addGlobalCallback(
        at::RecordFunctionCallback(on_backward, after_backward).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  }
  hooks::extend::set_called_module(on_called_module);
}

}  // namespace

void tell(Report& report, const std::string& folder, bool ended) {
  report.ended = ended;
  report.uses_torch = program_uses_torch();
  report.uses_python = program_uses_python();
  report.other_torch = other_torch();
  if (write(report, folder) || !ended) return;
  for (const auto& line : report.notes) std::cerr << "torchtap: " << line << std::endl;
}

std::uint64_t generation() noexcept {
  return current_generation.load(std::memory_order_relaxed);
}

bool is_active() noexcept {
  return agent != nullptr && agent->process == ::getpid();
}

void finish() noexcept {
  if (!is_active()) return;
  const OwnCalls own;
  if (has_mode()) {
    agent->mode->finish();
  } else if (is_own_process()) {
    agent->session.load()->finish();
  }
  agent->over = true;
}

void snapshot() noexcept {
  if (!observes()) return;
  if (has_mode()) {
    const OwnCalls own;
    return agent->mode->snapshot();
  }
  if (!is_own_process()) return;
  const OwnCalls own;
  agent->session.load()->snapshot();
}

void backward(bool begins) noexcept {
  if (!observes() || !has_mode() || OwnCalls::here()) return;
  with_mode([&](Mode& mode) { mode.backward(begins); });
}

bool waits_for_script() noexcept {
  if (agent == nullptr || OwnCalls::here()) return false;
  if (!observes()) {
    agent->called_later.store(true, std::memory_order_relaxed);
    return false;
  }
  return agent->mode == nullptr || agent->mode->waits_for_script();
}

void called_script(torch::jit::GraphFunction& function, const std::vector<c10::IValue>& stack,
                   const std::function<void()>& original) {
  const auto method = method_of(function, stack);
  if (!method.has_value()) return original();
  if (agent->mode == nullptr) {
    meet([&](Session& session) { return session.meet(*method); });
    return original();
  }
  const std::vector<c10::IValue> arguments(stack.begin() + 1, stack.end());
  agent->mode->script(*method, arguments, [&] {
    original();
    return stack.empty() ? c10::IValue() : stack.back();
  });
}

void found_root(const Module& root) noexcept {
  if (!observes() || OwnCalls::here()) return;
  if (agent->mode != nullptr) return with_mode([&](Mode& mode) { mode.found_root(root); });
  const OwnCalls own;
  try {
    session().learn(root);
  } catch (const std::exception& error) {
    session().note(tools::message_of(error));
  }
}

}  // namespace torchtap::tools::preload
