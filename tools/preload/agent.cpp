// Records in a program that knows nothing of torchtap: loaded by LD_PRELOAD together with
// libtorchtap_transparent, configured by the environment, saves when the program ends.
#include "agent.hpp"

#include <pthread.h>
#include <signal.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cereal/archives/json.hpp>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <shared_mutex>
#include <sstream>
#include <torchtap/core/error.hpp>
#include <torchtap/hooks/detail/direct.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <unordered_map>

#include "../asked.hpp"
#include "config.hpp"

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

void say(const std::string& text) {
  std::cerr << "torchtap: " << text << std::endl;
}

class Agent {
 public:
  explicit Agent(Config config) : config_(std::move(config)), process_(::getpid()) {
    if (!config_.types.empty()) types_ = std::regex(config_.types);
    if (!config_.names.empty()) names_ = selectors::names(config_.names);
    recorders::Options options;
    if (!config_.reduce.empty()) {
      options.reduction(tools::make_reduction(config_.reduce, config_.over, config_.elementwise));
    }
    options.on_error([this](const std::string& path, const std::exception_ptr& error) { note(path, error); });
    recorder_ = tools::make_recorder(config_.what, std::move(options));
  }

  /// Remembers where the descendants of `root` stand; a larger tree knows better than a smaller one.
  void learn(const Module& root) {
    const auto found = core::walk_modules(const_cast<Module&>(root));
    const std::unique_lock lock(mutex_);
    for (const auto& module : found) {
      if (module.module().weak_from_this().expired()) continue;
      Place& place = places_[&module.module()];
      if (!place.owner.expired() && place.tree >= found.size()) continue;
      place = {module.module().weak_from_this(), module.path(), module.aliases(), found.size()};
      // Said once and for all: what is not seen cannot be missed silently.
      if (module.doors().direct == core::Direct::no && module.leaf() && module.has_forward() &&
          matches_type(module.type())) {
        unseen_[module.type()].insert(module.path());
      }
    }
  }

  /// A module is called; attaches to it the first time, if it is one of those asked for.
  void meet(Module& module) {
    {
      const std::shared_lock lock(mutex_);
      const auto known = met_.find(&module);
      if (known != met_.end() && !known->second.expired()) return;
    }
    auto node = std::make_shared<core::ModuleRef::Node>();
    node->identity = node->module = &module;
    node->keep = module.weak_from_this().lock();
    node->type = core::pretty_type_name(module);
    node->leaf = module.children().empty();
    const auto* calls = core::direct_calls();
    const bool can_be_seen = node->keep != nullptr && calls != nullptr && calls->cover(module);
    if (can_be_seen) node->doors.direct = core::Direct::symbol;

    const std::unique_lock lock(mutex_);
    const auto place = places_.find(&module);
    if (place != places_.end() && !place->second.owner.expired()) {
      node->path = place->second.path;
      node->aliases = place->second.aliases;
    } else {
      node->path = c10::str(node->type, "#", used_.count(node->type) == 0 ? 0 : used_.at(node->type));
    }
    const core::ModuleRef ref(node);
    met_[&module] = module.weak_from_this();
    if (done_ || !can_be_seen || !matches_type(node->type) || (names_ && !(*names_)(ref))) return;
    if (place == places_.end() || place->second.owner.expired()) ++used_[node->type];
    // A program that makes its modules anew for each call would have us keep one recording for each of them.
    if (attached_ == kMost) {
      const std::lock_guard errors_lock(errors_mutex_);
      errors_["(more modules)"] = c10::str("the program has called more than ", kMost, " modules");
      return;
    }
    recorder_->attach({ref});
    ++attached_;
  }

  /// Writes what was recorded, once, in the process that it was recorded in.
  void finish() noexcept {
    if (::getpid() != process_ || done_.exchange(true)) return;
    const Busy busy;
    hooks::detail::set_called_module(nullptr);
    const bool is_the_program = process_ == config_.process;
    try {
      const std::unique_lock lock(mutex_);
      recorder_->detach();
      for (const auto& [path, text] : errors_) say("not all of \"" + path + "\" was recorded: " + text);
      for (const auto& [type, paths] : unseen_) {
        say(c10::str("not recorded: ", paths.size(), " modules of type ", type, ", \"", *paths.begin(),
                     "\" for one: their forward is compiled into the program."));
      }
      if (recorder_->empty()) {
        if (is_the_program) {
          say("nothing was recorded: no module that matches was called, or the program does not use LibTorch "
              "as a shared library.");
        }
        return;
      }
      const std::string directory =
          is_the_program ? config_.save : config_.save + "-" + std::to_string(process_);
      recorder_->save(directory, storage::SaveOptions().mkdir(true).overwrite(config_.overwrite));
    } catch (const c10::Error& error) {
      say(error.what_without_backtrace());
    } catch (const std::exception& error) {
      say(error.what());
    }
  }

 private:
  static constexpr std::size_t kMost = 10000;

  struct Place {
    std::weak_ptr<const Module> owner;
    std::string path;
    std::vector<std::string> aliases;
    std::size_t tree = 0;  // how many modules its root has
  };

  bool matches_type(const std::string& type) const { return !types_ || std::regex_match(type, *types_); }

  void note(const std::string& path, const std::exception_ptr& error) {
    const std::lock_guard lock(errors_mutex_);
    if (errors_.count(path) != 0) return;
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& known) {
      errors_[path] = known.what_without_backtrace();
    } catch (const std::exception& known) {
      errors_[path] = known.what();
    } catch (...) {
      errors_[path] = "an unknown exception";
    }
  }

  const Config config_;
  const pid_t process_;
  std::optional<std::regex> types_;
  std::optional<selectors::Selector> names_;
  std::atomic<bool> done_{false};
  std::shared_mutex mutex_;
  std::unique_ptr<recorders::Recorder> recorder_;
  std::size_t attached_ = 0;
  std::unordered_map<const Module*, Place> places_;
  std::unordered_map<const Module*, std::weak_ptr<const Module>> met_;
  std::unordered_map<std::string, int> used_;
  std::map<std::string, std::set<std::string>> unseen_;
  std::mutex errors_mutex_;
  std::map<std::string, std::string> errors_;
};

Agent* agent = nullptr;  // never destroyed: threads may call modules while the process ends

void on_called_module(Module& module) {
  if (Busy::here()) return;
  const Busy busy;
  try {
    agent->meet(module);
  } catch (const std::exception& error) {
    say(error.what());  // the program's call goes on
  }
}

int wake_up[2];
std::terminate_handler former_terminate = nullptr;

/// Saving allocates and locks, which a signal handler may not do; a thread waits for the handler's word.
void* save_and_die(void*) {
  unsigned char signal_number = 0;
  while (::read(wake_up[0], &signal_number, 1) != 1) {
  }
  agent->finish();
  ::signal(signal_number, SIG_DFL);
  ::kill(::getpid(), signal_number);
  return nullptr;
}

void on_signal(int number) {
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const auto written = ::write(wake_up[1], &byte, 1);
}

void on_terminate() {
  agent->finish();
  if (former_terminate != nullptr) former_terminate();
  std::abort();
}

void watch_signals() {
  if (::pipe(wake_up) != 0) return;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals go to the program's threads
  pthread_t thread;
  const bool started = pthread_create(&thread, nullptr, save_and_die, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) return;
  pthread_detach(thread);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = on_signal;
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    ::sigaction(number, &ours, nullptr);
  }
}

[[gnu::constructor]] void start() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return;
  try {
    Config config;
    std::istringstream stream(text);
    cereal::JSONInputArchive archive(stream);
    config.serialize(archive);
    agent = new Agent(config);
  } catch (const c10::Error& error) {
    say(error.what_without_backtrace());
    std::_Exit(2);
  } catch (const std::exception& error) {
    say(std::string("the configuration in TORCHTAP_PRELOAD cannot be read: ") + error.what());
    std::_Exit(2);
  }
  std::atexit([] { agent->finish(); });
  std::at_quick_exit([] { agent->finish(); });
  former_terminate = std::set_terminate(on_terminate);
  watch_signals();
  hooks::detail::set_called_module(on_called_module);
}

}  // namespace

void found_root(const Module& root) noexcept {
  if (agent == nullptr || Busy::here()) return;
  const Busy busy;
  try {
    agent->learn(root);
  } catch (const std::exception& error) {
    say(error.what());
  }
}

}  // namespace torchtap::preload
