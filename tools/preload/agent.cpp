// Records in a program that knows nothing of torchtap: loaded by LD_PRELOAD together with
// libtorchtap_transparent, configured by the environment, saves when the program ends.
#include "agent.hpp"

#include <ATen/record_function.h>
#include <pthread.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cereal/archives/json.hpp>
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

namespace torchtap::preload {
namespace {

using torch::nn::Module;

/// While it lives, what this thread does is the agent's own doing.
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
  explicit Agent(const Config& its) : config(its), session(new Session(its, {})) {}

  Config config;
  std::atomic<Session*> session;
  /// The session is the parent's. A child that never calls a module, but runs another program or ends, costs
  /// nothing.
  std::atomic<bool> forked{false};
  std::mutex beginning;
};

Agent* agent = nullptr;
std::atomic<std::uint64_t> current_generation{1};

/// This process's own. That of its parent is never destroyed: another thread, which is not here, may have
/// been at work on it.
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
  return agent != nullptr && !agent->forked && agent->session.load()->process() == ::getpid();
}

void on_called_module(Module& module) {
  if (Busy::here()) return;
  const Busy busy;
  try {
    if (session().meet(module)) {
      session().begin();
      watch(agent->config.every);
    }
  } catch (const std::exception& error) {
    session().note(tools::message_of(error));  // the program's call goes on
  }
}

std::unique_ptr<at::ObserverContext> on_script(const at::RecordFunction& /*function*/) {
  if (agent != nullptr && !agent->forked) agent->session.load()->note_script();
  return nullptr;
}

std::terminate_handler former_terminate = nullptr;

void on_terminate() {
  finish();
  if (former_terminate != nullptr) former_terminate();
  std::abort();
}

// What a thread may hold that is not there any more in a child has to be at rest while the process forks. The
// registry's own handlers were registered before, so they come after these, as it is locked after the
// session. The session of a parent stays locked in its child, which takes it for nobody's.
void before_fork() {
  agent->beginning.lock();
  if (!agent->forked) agent->session.load()->lock();
}

void after_fork() {
  if (!agent->forked) agent->session.load()->unlock();
  agent->beginning.unlock();
}

void in_child() {
  agent->beginning.unlock();
  ++current_generation;
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
    { const hooks::detail::Hook first; }  // these register what they do at a fork before the agent does
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
  hooks::detail::set_called_module(on_called_module);
}

}  // namespace

std::uint64_t generation() noexcept {
  return current_generation.load(std::memory_order_relaxed);
}

bool is_recording() noexcept {
  return is_own_process() && agent->session.load()->attached();
}

void finish() noexcept {
  if (!is_own_process()) return;
  const Busy busy;
  agent->session.load()->finish();
}

void snapshot() noexcept {
  if (!is_own_process()) return;
  const Busy busy;
  agent->session.load()->snapshot();
}

void found_root(const Module& root) noexcept {
  if (agent == nullptr || Busy::here()) return;
  const Busy busy;
  try {
    session().learn(root);
  } catch (const std::exception& error) {
    session().note(tools::message_of(error));
  }
}

}  // namespace torchtap::preload
