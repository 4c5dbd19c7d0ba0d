// Keeps samples and companions waiting in each thread until their forward or their context ends.

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/base/of_thread.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/statistics/detail/fold_paired.hpp>
#include <torchtap/statistics/detail/pairing.hpp>

namespace torchtap::statistics::detail {
namespace {

/// The forwards of a root in a context, or the calls of a module.
struct Turns {
  const Pairing* pairing;
  const core::Context* context;
  std::size_t of;
  std::uint64_t count = 0, forward = 0;  // the latest one, as the thread numbers them
};

/// The tensors that wait in this thread.
struct Waiting {
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<Turns> turns;
  bool until_forward_ends = false;             // whether its end releases the waiting tensors
  std::vector<const core::Context*> contexts;  // whose end does

  template <class Condition>
  void drop_if(const Condition& condition) noexcept {
    const auto gone = std::stable_partition(pairs.begin(), pairs.end(), [&](const auto& pair) {
      const auto taker = pair->owner.lock();
      if (taker != nullptr && !condition(*pair)) return true;
      if (taker != nullptr) taker->count_unmatched(*pair);
      return false;
    });
    pairs.erase(gone, pairs.end());
  }
};

Waiting& waiting() {
  return base::of_thread<Waiting>();
}

void forward_ended() noexcept {
  waiting().until_forward_ends = false;
  waiting().drop_if([](const Pair& pair) { return !pair.in_context; });
}

void context_ended(const core::Context* context) noexcept {
  Waiting& all = waiting();
  all.contexts.erase(std::find(all.contexts.begin(), all.contexts.end(), context));
  all.drop_if([&](const Pair& pair) { return pair.context == context; });
  all.turns.erase(std::remove_if(all.turns.begin(), all.turns.end(),
                                 [&](const Turns& one) { return one.context == context; }),
                  all.turns.end());
}

/// The context whose end releases the pairs that begin now; null if there is none.
const core::Context* ending_context() {
  const core::Context* const context = core::Context::together();
  auto& known = waiting().contexts;
  if (context == nullptr || std::find(known.begin(), known.end(), context) != known.end()) return context;
  known.reserve(known.size() + 1);
  context->at_end([context] { context_ended(context); });
  known.push_back(context);
  return context;
}

Turns& turns_of(const Pairing* pairing, const core::Context* context, std::size_t of) {
  for (Turns& one : waiting().turns) {
    if (one.pairing == pairing && one.context == context && one.of == of) return one;
  }
  return waiting().turns.emplace_back(Turns{pairing, context, of});
}

/// The number of this forward of a root in a context, from 1.
std::uint64_t turn(const Pairing* pairing, const core::Context* context, std::size_t root,
                   const hooks::Forwards& forwards) {
  Turns& turns = turns_of(pairing, context, root);
  if (turns.forward != forwards.current()) {
    turns.forward = forwards.current();
    ++turns.count;
  }
  return turns.count;
}

std::vector<model::ModuleRef> modules_of(const model::ModuleRef& root) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !root.exported(),
      "recorders::RecorderOptions::with: an exported model is not walked from one of its modules; "
      "pass its modules: output(model, path).");
  return root.scripted() ? model::walk_modules(root.script(), root.method())
                         : model::walk_modules(root.module());
}

}  // namespace

bool Pair::complete() const {
  return std::all_of(companions.begin(), companions.end(), [](const auto& one) { return one.defined(); });
}

Pairing::Pairing(const std::shared_ptr<FoldPaired>& taker, const model::ModuleRef& module,
                 std::vector<hooks::Handle>& hooks)
    : elsewhere_(!module.root().reachable()) {
  const auto& companions = taker->named();
  std::vector<model::ModuleRef> modules, roots, others;
  const auto add_root = [&](const model::ModuleRef& root) {
    const auto known = std::find(roots.begin(), roots.end(), root);
    root_of_.push_back(static_cast<std::size_t>(known - roots.begin()));
    if (known == roots.end()) {
      roots.push_back(root);
      forwards_.emplace_back(root);
    }
    hooked_ = hooked_ && root.reachable() && !root.exported();
  };
  add_root(module.root());
  for (std::size_t i = 0; i < companions.size(); ++i) {
    const recorders::Companion& companion = companions[i].second;
    if (!companion.has_modules() && modules.empty()) modules = modules_of(module.root());
    others.push_back(companion.of(module, modules));
    add_root(others.back().root());
  }
  elsewhere_ = elsewhere_ || roots.size() > 1;
  // Also forwards in which none of the modules is called count. First, because a root may be a companion.
  for (std::size_t i = 0; elsewhere_ && hooked_ && i < roots.size(); ++i) {
    const auto begun = [this, i, forwards = forwards_[i]](hooks::Event&) {
      if (const core::Context* const context = ending_context()) turn(this, context, i, forwards);
    };
    hooks.push_back(hooks::attach(roots[i], hooks::Kind::forward_pre, begun));
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto kind =
        companions[i].second.of_output() ? hooks::Kind::forward_output : hooks::Kind::forward_pre;
    hooks.push_back(
        hooks::attach(others[i], kind, [taker, i](hooks::Event& event) { taker->on_companion(event, i); }));
  }
}

Pair& Pairing::of_call(const std::shared_ptr<FoldPaired>& taker, std::int64_t call,
                       std::optional<std::size_t> companion) const {
  Waiting& all = waiting();
  const core::Context* context = nullptr;
  if (elsewhere_) {
    context = ending_context();
    TORCH_CHECK_VALUE(
        context != nullptr, taker->slots().describe(),
        ": nothing says which calls of the recorded module and of its companions belong to one forward, "
        "because they are in two models, or because their root cannot be hooked; run all inside of "
        "one core::Context.");
  } else if (!all.until_forward_ends) {
    // Calls in TorchScript and of a Sequential end unseen: a context around them, or the next forward,
    // releases the waiting tensors.
    all.until_forward_ends = forwards_[0].at_end(forward_ended);
    if (!all.until_forward_ends) context = ending_context();
  }
  const std::size_t member = companion ? 1 + *companion : 0;
  std::uint64_t forward = 0;
  if (!elsewhere_) {
    forward = forwards_[0].current();
    all.drop_if([&](const Pair& pair) { return pair.taker == taker.get() && pair.forward != forward; });
  } else if (hooked_) {
    forward = turn(this, context, root_of_[member], forwards_[root_of_[member]]);
  } else {
    call = static_cast<std::int64_t>(turns_of(this, context, forwards_.size() + member).count++);
  }
  for (const auto& pair : all.pairs) {
    if (pair->taker == taker.get() && pair->forward == forward && pair->call == call &&
        (!elsewhere_ || pair->context == context))
      return *pair;
  }
  auto added = std::make_unique<Pair>();
  added->owner = taker;
  added->taker = taker.get();
  added->in_context = elsewhere_;
  added->forward = forward;
  added->context = context;
  added->call = call;
  added->companions.resize(taker->named().size());
  all.pairs.push_back(std::move(added));
  return *all.pairs.back();
}

Pair Pairing::taken(Pair& pair) {
  auto& pairs = waiting().pairs;
  const auto found =
      std::find_if(pairs.begin(), pairs.end(), [&](const auto& one) { return one.get() == &pair; });
  Pair out = std::move(**found);
  pairs.erase(found);
  return out;
}

}  // namespace torchtap::statistics::detail
