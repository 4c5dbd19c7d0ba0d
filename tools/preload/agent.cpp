// The agent: records in a program that does not mention torchtap. It is loaded by LD_PRELOAD, or by the
// waiter, together with libtorchtap_transparent, configured by the area, where it publishes what it records.
#include "agent.hpp"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>

#include <torchtap/base/thread.hpp>
#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/hooks/extend/called_module.hpp>
#include <torchtap/hooks/extend/own_calls.hpp>

#include "config.hpp"
#include "kept_code.hpp"
#include "monitor_mode.hpp"
#include "publishing.hpp"
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
  std::atomic<bool> publishes_at_end{false};
  std::atomic<bool> called_mobile{false};
};

Agent* agent = nullptr;
std::atomic<std::uint64_t> current_generation{1};

bool is_own_process() noexcept {
  return agent != nullptr && agent->process == ::getpid();
}

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

bool has_mode() noexcept {
  return agent != nullptr && agent->mode != nullptr;
}

void at_end();

/// Ends a mode with the main thread, while the thread's objects exist which modes use.
struct MainThreadEnd {
  ~MainThreadEnd() {
    if (::getpid() == static_cast<pid_t>(::syscall(SYS_gettid))) at_end();
  }
};

/// Whether the agent still does something.
bool observes() noexcept {
  if (agent != nullptr && agent->mode != nullptr) {
    static thread_local const MainThreadEnd end;
    static_cast<void>(end);
  }
  return agent != nullptr && !agent->over.load(std::memory_order_acquire) &&
         (agent->mode == nullptr || base::thread_lives());
}

/// Whether a call is still seen; where not, notes it.
bool observes_call() noexcept {
  const bool sees = observes();
  if (!sees && agent != nullptr) agent->called_later.store(true, std::memory_order_relaxed);
  return sees;
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
  keep_noted_code();
}

void meet(const std::function<bool(Session&)>& meeting) {
  const OwnCalls own;
  try {
    Session& own = session();
    if (meeting(own)) own.begin();
  } catch (const std::exception& error) {
    session().note(tools::message_of(error));  // the program's call continues
  }
  keep_noted_code();
}

void on_called_module(Module& module) {
  if (!observes_call()) return;
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
  agent->process = ::getpid();  // functions of `atexit` are inherited
  agent->over = agent->called_later = agent->called_mobile = false;
  try {
    Publishing::begin();
  } catch (const std::exception&) {  // nothing is recorded in it
    agent->over = true;
  }
  if (agent->mode != nullptr) {
    agent->mode = agent->mode->for_child();
  } else {
    agent->beginning.unlock();
    agent->forked = true;
  }
}

/// Runs among the functions of a normal end. What the program runs afterwards, as in its own such functions,
/// is published at once.
void at_end() {
  if (!is_own_process() || Publishing::here() == nullptr) return;
  // In a handler of a signal that interrupted a call, which holds locks.
  if (hooks::extend::call_depth() > 0) return;
  const OwnCalls own;
  Publishing::here()->ends();
  if (has_mode()) {
    agent->mode->finish();
    agent->over = true;
  } else if (!agent->forked) {
    agent->over = agent->session.load()->finish();
  }
}

/// Runs behind all others.
void at_very_end() {
  if (!is_own_process() || Publishing::here() == nullptr) return;
  at_end();
  if (!agent->called_later) return;
  Report report = own_report();
  report.notes.emplace_back(
      "modules that were called after main had returned, or exit had been called, are left out.");
  tell(report, true);
}

[[gnu::constructor]] void start() {
  Area& area = torchtap_preload_area();
  if (area.header == nullptr) return;
  const OwnCalls own;
  try {
    const std::size_t size = area.header->config_size;
    const void* const text = area.map(area.header->config_at, size);
    if (text == nullptr) return;
    const auto config = read_from<Config>(std::string(static_cast<const char*>(text), size));
    ::munmap(const_cast<void*>(text), size);
    ::setenv("LD_PRELOAD", config.libraries.c_str(), 1);
    ::unsetenv(kStartedAgain);
    hooks::extend::prepare();  // its fork handlers go before the agent's
    Publishing::begin();
    Report report;
    tell(report, false);
    agent = new Agent(config);
  } catch (const std::exception& error) {
    std::cerr << "torchtap: " << tools::message_of(error) << std::endl;
    std::_Exit(2);
  }
  ::pthread_atfork(before_fork, after_fork, in_child);
  std::atexit(at_very_end);
  if (has_mode() && agent->mode->hides_backward()) {
    at::addGlobalCallback(
        at::RecordFunctionCallback(on_backward, after_backward).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  }
  hooks::extend::set_called_module(on_called_module);
}

}  // namespace

void tell(Report& report, bool ended) {
  Publishing* const publishing = Publishing::here();
  if (publishing == nullptr) return;
  report.process = ::getpid();
  report.program = program_name();
  report.uses_torch = program_uses_torch();
  report.uses_python = program_uses_python();
  report.other_torch = other_torch();
  publishing->report(report, ended);
}

Report own_report() {
  return Publishing::here()->reported();
}

void publish_at_end() {
  if (agent->publishes_at_end.exchange(true)) return;
  // LibTorch's pool of threads has to exist before, so that it is destroyed after.
  static_cast<void>(at::get_num_threads());
  std::atexit(at_end);
  std::at_quick_exit(at_end);
}

std::uint64_t generation() noexcept {
  return current_generation.load(std::memory_order_relaxed);
}

void backward(bool begins) noexcept {
  if (!observes() || !has_mode() || OwnCalls::here()) return;
  with_mode([&](Mode& mode) { mode.backward(begins); });
}

bool waits_for_script() noexcept {
  // A tracer would take the hooks into the graph that it makes.
  if (OwnCalls::here() || torch::jit::tracer::isTracing() || !observes_call()) return false;
  return agent->mode == nullptr || agent->mode->waits_for_script();
}

void called_script(torch::jit::GraphFunction& function, const std::vector<c10::IValue>& stack,
                   const std::function<void()>& original) {
  const auto method = method_of(function, stack);
  if (!method.has_value()) return original();
  if (agent->mode == nullptr) {
    meet([&](Session& session) { return session.meet(*method); });
    original();
    return session().after_call();
  }
  const std::vector<c10::IValue> arguments(stack.begin() + 1, stack.end());
  agent->mode->script(*method, arguments, [&] {
    original();
    return stack.empty() ? c10::IValue() : stack.back();
  });
}

void called_mobile() noexcept {
  if (!observes_call() || agent->called_mobile.exchange(true)) return;
  const char* const text =
      "the program runs a model by LibTorch's lite interpreter (torch::jit::_load_for_mobile), of whose "
      "modules nothing is seen; those of torch::jit::load are.";
  if (agent->mode != nullptr) return with_mode([&](Mode& mode) { mode.note(text); });
  meet([&](Session& session) {
    session.note(text);
    return true;
  });
}

void found_root(const Module& root) noexcept {
  if (!observes() || OwnCalls::here()) return;
  if (agent->mode != nullptr) {
    return with_mode([&](Mode& mode) {
      mode.found_root(root);
      mode.tell_news();
    });
  }
  const OwnCalls own;
  try {
    session().learn(root);
  } catch (const std::exception& error) {
    session().note(tools::message_of(error));
  }
  keep_noted_code();
}

}  // namespace torchtap::tools::preload
