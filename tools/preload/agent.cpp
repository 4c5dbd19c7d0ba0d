// The agent: records in a program that knows nothing of torchtap. It is loaded by LD_PRELOAD together with
// libtorchtap_transparent, configured by the environment, and saves when the program ends.
#include "agent.hpp"

#include <ATen/record_function.h>
#include <cereal/archives/json.hpp>
#include <pthread.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <sstream>

#include <torchtap/hooks/detail/interposed.hpp>
#include <torchtap/hooks/detail/registry.hpp>

#include "../message.hpp"
#include "config.hpp"
#include "ending.hpp"
#include "session.hpp"
#include "trace.hpp"

namespace torchtap::preload {
namespace {

using torch::nn::Module;

/// While it exists, this thread's calls are the agent's own.
class Busy {
 public:
  Busy() { ++depth(); }
  ~Busy() { --depth(); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  static bool here() { return depth() != 0; }

 private:
  static int& depth() {
    static thread_local int depth = 0;
    return depth;
  }
};

/// Never destroyed: threads may call modules while the process ends.
struct Agent {
  explicit Agent(const Config& its) : config(its) {
    if (config.trace) {
      trace = new Trace(config);
    } else {
      session = new Session(config, {});
    }
  }

  Config config;
  std::atomic<Session*> session{nullptr};
  Trace* trace = nullptr;  // instead of a session
  /// The session is still the parent's. It is replaced lazily, so that a child which never calls a module
  /// costs nothing.
  std::atomic<bool> forked{false};
  std::mutex beginning;
};

Agent* agent = nullptr;
std::atomic<std::uint64_t> current_generation{1};

/// This process's session. The parent's session is never destroyed: a thread that the child lacks may have
/// been using it.
Session& session() {
  if (agent->forked.load(std::memory_order_acquire)) {
    const std::lock_guard lock(agent->beginning);
    if (agent->forked.load(std::memory_order_relaxed)) {
      agent->session = new Session(agent->config, agent->session.load()->leave_to_child());
      agent->forked.store(false, std::memory_order_release);
    }
  }
  return *agent->session.load(std::memory_order_acquire);
}

bool is_own_process() noexcept {
  return agent != nullptr && agent->trace == nullptr && !agent->forked &&
         agent->session.load()->process() == ::getpid();
}

bool traces() noexcept {
  return agent != nullptr && agent->trace != nullptr;
}

/// Does something with the trace. The program goes on if that fails.
template <class Function>
void with_trace(Function&& function) noexcept {
  const Busy busy;
  try {
    function(*agent->trace);
  } catch (const std::exception& error) {
    agent->trace->note(tools::message_of(error));
  }
}

void on_called_module(Module& module) {
  if (Busy::here()) return;
  if (agent->trace != nullptr) {
    with_trace([&](Trace& trace) {
      trace.called(module);
      if (trace.logging()) watch(0);
    });
    return;
  }
  const Busy busy;
  try {
    if (session().meet(module)) {
      session().begin();
      watch(agent->config.every);
    }
  } catch (const std::exception& error) {
    session().note(tools::message_of(error));  // the program's call continues
  }
}

std::unique_ptr<at::ObserverContext> on_script(const at::RecordFunction& /*function*/) {
  if (agent != nullptr && agent->trace == nullptr && !agent->forked) agent->session.load()->note_script();
  return nullptr;
}

/// Hides a backward from the trace, whichever thread it runs in.
struct Hidden : at::ObserverContext {
  operations::Unseen unseen;
};

std::unique_ptr<at::ObserverContext> on_backward(const at::RecordFunction& /*function*/) {
  if (Busy::here()) return nullptr;
  with_trace([](Trace& trace) { trace.backward(); });
  return std::make_unique<Hidden>();
}

void after_backward(const at::RecordFunction& /*function*/, at::ObserverContext* /*hidden*/) {}

std::terminate_handler former_terminate = nullptr;

void on_terminate() {
  finish();
  if (former_terminate != nullptr) former_terminate();
  std::abort();
}

// Locks that a thread may hold must be free while the process forks, as that thread does not exist in the
// child. The registry registered its handlers before these, so they run after them, since it is locked after
// the session. The parent's session stays locked in the child, which does not use it.
void before_fork() {
  if (agent->trace != nullptr) return agent->trace->lock();
  agent->beginning.lock();
  if (!agent->forked) agent->session.load()->lock();
}

void after_fork() {
  if (agent->trace != nullptr) return agent->trace->unlock();
  if (!agent->forked) agent->session.load()->unlock();
  agent->beginning.unlock();
}

void in_child() {
  ++current_generation;
  if (agent->trace != nullptr) {
    agent->trace = agent->trace->for_child();
    return forget_watch();
  }
  agent->beginning.unlock();
  agent->forked = true;
  forget_watch();
}

[[gnu::constructor]] void start() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return;
  const Busy busy;
  try {
    Config config;
    std::istringstream stream(text);
    cereal::JSONInputArchive archive(stream);
    config.serialize(archive);
    { const hooks::detail::Hook first; }  // these must register their fork handlers before the agent does
    hooks::detail::Registry::instance();
    agent = new Agent(config);
  } catch (const c10::Error& error) {
    std::cerr << "torchtap: " << error.what_without_backtrace() << std::endl;
    std::_Exit(2);
  } catch (const std::exception& error) {
    std::cerr << "torchtap: the configuration in TORCHTAP_PRELOAD cannot be read: " << error.what()
              << std::endl;
    std::_Exit(2);
  }
  ::pthread_atfork(before_fork, after_fork, in_child);
  std::atexit(finish);
  std::at_quick_exit(finish);
  former_terminate = std::set_terminate(on_terminate);
  at::addGlobalCallback(
      at::RecordFunctionCallback(on_script).scopes({at::RecordScope::TORCHSCRIPT_FUNCTION}));
  if (agent->trace != nullptr) {
    at::addGlobalCallback(
        at::RecordFunctionCallback(on_backward, after_backward).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  }
  hooks::detail::set_called_module(on_called_module);
}

}  // namespace

std::uint64_t generation() noexcept {
  return current_generation.load(std::memory_order_relaxed);
}

bool is_recording() noexcept {
  if (traces()) return agent->trace->logging();
  return is_own_process() && agent->session.load()->attached();
}

void finish() noexcept {
  if (traces()) {
    const Busy busy;
    return agent->trace->finish();
  }
  if (!is_own_process()) return;
  const Busy busy;
  agent->session.load()->finish();
}

void snapshot() noexcept {
  if (!is_own_process()) return;
  const Busy busy;
  agent->session.load()->snapshot();
}

bool waits_for_script() noexcept {
  return traces() && !Busy::here() && agent->trace->waiting();
}

c10::IValue called_script(const torch::jit::Method& method, const std::vector<c10::IValue>& arguments,
                          const std::function<c10::IValue()>& original) {
  return agent->trace->script(method, arguments, original);
}

void found_root(const Module& root) noexcept {
  if (agent == nullptr || Busy::here()) return;
  if (agent->trace != nullptr) return with_trace([&](Trace& trace) { trace.found_root(root); });
  const Busy busy;
  try {
    session().learn(root);
  } catch (const std::exception& error) {
    session().note(tools::message_of(error));
  }
}

}  // namespace torchtap::preload
