#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/base/of_thread.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/recorders/detail/pairing.hpp>
#include <torchtap/recorders/detail/record.hpp>

namespace torchtap::recorders::detail {
namespace {

/// The tensors that wait in this thread.
struct Waiting {
  std::vector<std::unique_ptr<Pair>> pairs;
  bool until_forward_ends = false;             // whether its end releases the waiting tensors
  std::vector<const core::Context*> contexts;  // whose end does

  template <class Condition>
  void drop_if(const Condition& condition) noexcept {
    const auto gone = std::stable_partition(pairs.begin(), pairs.end(), [&](const auto& pair) {
      const auto record = pair->owner.lock();
      if (record != nullptr && !condition(*pair)) return true;
      if (record != nullptr) record->count_unmatched(*pair);
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
  waiting().drop_if([](const Pair& pair) { return pair.forward != 0; });
}

void context_ended(const core::Context* context) noexcept {
  Waiting& all = waiting();
  all.contexts.erase(std::find(all.contexts.begin(), all.contexts.end(), context));
  all.drop_if([&](const Pair& pair) { return pair.context == context; });
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

std::vector<model::ModuleRef> modules_of(const model::ModuleRef& root) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !root.exported(),
      "recorders::Options::with: an exported model is not walked from one of its modules; "
      "pass its modules: output(model, path).");
  return root.scripted() ? model::walk_modules(root.script(), root.method())
                         : model::walk_modules(root.module());
}

}  // namespace

bool Pair::complete() const {
  return std::all_of(companions.begin(), companions.end(), [](const auto& one) { return one.defined(); });
}

Pairing::Pairing(const std::shared_ptr<Record>& record, const model::ModuleRef& module,
                 std::vector<hooks::Handle>& hooks)
    : elsewhere_(!module.root().reachable()), forwards_(module.root()) {
  const auto& companions = record->options->with();
  std::vector<model::ModuleRef> modules;
  for (std::size_t i = 0; i < companions.size(); ++i) {
    const Companion& companion = companions[i].second;
    if (!companion.has_modules() && modules.empty()) modules = modules_of(module.root());
    const auto kind = companion.of_output() ? hooks::Kind::forward_output : hooks::Kind::forward_pre;
    const model::ModuleRef other = companion.of(module, modules);
    hooks.push_back(
        hooks::attach(other, kind, [record, i](hooks::Event& event) { record->on_companion(event, i); }));
    elsewhere_ = elsewhere_ || !(other.root() == module.root());
  }
}

Pair& Pairing::of_call(const std::shared_ptr<Record>& record, std::int64_t call) const {
  Waiting& all = waiting();
  const core::Context* context = nullptr;
  if (elsewhere_) {
    context = ending_context();
    TORCH_CHECK_VALUE(
        context != nullptr, record->describe(),
        ": nothing says which calls of the recorded module and of its companions belong to one forward, "
        "because they are in two models, or because their root cannot be hooked; run all inside of "
        "one core::Context.");
  } else if (!all.until_forward_ends) {
    // Calls in TorchScript and of a Sequential end unseen: a context around them, or the next forward,
    // releases the waiting tensors.
    all.until_forward_ends = forwards_.at_end(forward_ended);
    if (!all.until_forward_ends) context = ending_context();
  }
  const std::uint64_t forward = elsewhere_ ? 0 : forwards_.current();
  all.drop_if([&](const Pair& pair) { return pair.record == record.get() && pair.forward != forward; });
  for (const auto& pair : all.pairs) {
    if (pair->record == record.get() && pair->call == call) return *pair;
  }
  auto added = std::make_unique<Pair>();
  added->owner = record;
  added->record = record.get();
  added->forward = forward;
  added->context = context;
  added->call = call;
  added->companions.resize(record->options->with().size());
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

}  // namespace torchtap::recorders::detail
