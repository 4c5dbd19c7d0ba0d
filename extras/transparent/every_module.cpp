// Hooks on every module that is called: attached to each at its first call.
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/extend/called_module.hpp>
#include <torchtap/hooks/extend/own_calls.hpp>
#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/transparent/detail/intercept.hpp>
#include <torchtap/transparent/transparent.hpp>

namespace torchtap::transparent {

/// The modules that one hook was attached to. Kept by their hooks weakly, so that gradients may arrive later.
struct EveryModule::State : std::enable_shared_from_this<State> {
  State(hooks::Kind hooked, Callback called) : kind(hooked), callback(std::move(called)) {}

  /// Attaches to the module unless that was done before.
  void meet(torch::nn::Module& module);
  void forget_the_dead();

  struct Met {
    std::weak_ptr<torch::nn::Module> owner;
    hooks::Handle handle;
  };
  static constexpr std::size_t kFew = 64;

  const hooks::Kind kind;
  const Callback callback;
  mutable std::shared_mutex mutex;
  std::unordered_map<const torch::nn::Module*, Met> modules;
  std::size_t most = kFew;                    // of `modules`, before the dead are forgotten
  std::map<std::string, std::string> missed;  // types, with the reason

  /// The receivers of calls. Never destroyed: programs call modules while they end.
  struct All {
    std::shared_mutex mutex;
    std::vector<State*> states;
    hooks::extend::CalledModule former = nullptr;
  };
  static All& all() {
    static auto* states = new All;
    return *states;
  }
  static void on_called_module(torch::nn::Module& module) {
    const std::shared_lock lock(all().mutex);
    if (all().former != nullptr) all().former(module);
    for (State* state : all().states) state->meet(module);
  }
};

void EveryModule::State::meet(torch::nn::Module& module) {
  {
    const std::shared_lock lock(mutex);
    const auto known = modules.find(&module);
    if (known != modules.end() && !known->second.owner.expired()) return;
  }
  const hooks::extend::OwnCalls own;
  const model::ModuleRef ref = model::walk_modules(module).front();
  const std::unique_lock lock(mutex);
  if (modules.size() >= most) forget_the_dead();
  Met& met = modules[&module];
  if (!met.owner.expired()) return;  // another thread was faster
  const std::weak_ptr<torch::nn::Module> owner = module.weak_from_this();
  if (model::extend::doors_of(ref).interposed == model::extend::Interposed::no) {
    missed.try_emplace(ref.type(), ref.reachable()
                                       ? "its type is declared with TORCHTAP_MODULE; attach to it."
                                       : model::extend::interposed_calls()->why_not(module).text);
  } else {
    met.handle = hooks::attach(
        ref, kind,
        [weak = weak_from_this(), owner](hooks::Event& event) {
          const auto state = weak.lock();
          const auto alive = owner.lock();  // not when a gradient comes later than the module lives
          if (state != nullptr && alive != nullptr) state->callback(*alive, event);
        },
        hooks::Place::first);
  }
  met.owner = owner;
}

/// Modules that are made anew in each forward would pile up.
void EveryModule::State::forget_the_dead() {
  for (auto one = modules.begin(); one != modules.end();) {
    one = one->second.owner.expired() ? modules.erase(one) : std::next(one);
  }
  most = std::max(kFew, 2 * modules.size());
}

EveryModule::EveryModule(hooks::Kind kind, Callback callback) {
  TORCH_CHECK_VALUE(callback != nullptr, "transparent::EveryModule: the callback is empty.");
  TORCH_CHECK_VALUE(
      kind != hooks::Kind::backward_parameter,
      "transparent::EveryModule: gradients of parameters need no call of a module; attach a "
      "recorders::BackwardParameter to the model, or hooks::attach(module, \"weight\", callback).");
  const std::string blind = detail::why_blind();
  TORCH_CHECK_VALUE(blind.empty(), "transparent::EveryModule: no call of a module is seen. ", blind);
  state_ = std::make_shared<State>(kind, std::move(callback));
  State::All& all = State::all();
  const std::unique_lock lock(all.mutex);
  if (all.states.empty()) all.former = hooks::extend::set_called_module(State::on_called_module);
  all.states.push_back(state_.get());
}

EveryModule::~EveryModule() {
  State::All& all = State::all();
  {
    const std::unique_lock lock(all.mutex);
    all.states.erase(std::find(all.states.begin(), all.states.end(), state_.get()));
    if (all.states.empty()) hooks::extend::set_called_module(all.former);
  }
  state_->modules.clear();
}

std::vector<std::string> EveryModule::missed() const {
  const std::shared_lock lock(state_->mutex);
  std::vector<std::string> texts;
  for (const auto& [type, reason] : state_->missed) texts.push_back(c10::str(type, ": ", reason));
  return texts;
}

}  // namespace torchtap::transparent
