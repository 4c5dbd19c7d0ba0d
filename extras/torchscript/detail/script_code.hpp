#pragma once

/// Holds a TorchScript function with its compiled form for each set of hooks.

#include <torch/csrc/jit/api/function_impl.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torchtap/torchscript/detail/script_call.hpp>

namespace torchtap::torchscript::detail {

/// The functions, among one and all its callees, that have operators compiled in, and for which sides.
/// Sorted.
using Variant = std::vector<std::pair<const torch::jit::GraphFunction*, Sides>>;

/// Autocast on CPU and on GPU.
struct Autocast {
  bool cpu = false, gpu = false;
};

/// A function of a model, and its compiled form for each set of hooks. Guarded by the registry's lock.
///
/// Lifetime. Other threads may call the function at any moment. LibTorch gives them a reference to the
/// installed executor under the function's own lock, and runs it under no lock; so everything that was ever
/// installed is kept as long as the function.
///
/// Locks. LibTorch locks a function and then, if it has to compile it, its callees, and so on; no function
/// calls itself, directly or indirectly, so the order has no cycle. We lock one function at a time, to read
/// or exchange what is installed, and take no other lock meanwhile. We compile before that, under locks that
/// LibTorch takes in its own order.
///
/// Consistency. Other threads do not wait while functions are exchanged one by one, so LibTorch may compile a
/// function while only some of its callees are exchanged. Callees come first, so this ends with the
/// function's own exchange: graphs that LibTorch installed since `remember` belong to no variant and are set
/// aside; graphs that it compiles later contain only finished callees.
class ScriptCode {
 public:
  explicit ScriptCode(torch::jit::GraphFunction& compiled);
  ScriptCode(const ScriptCode&) = delete;
  ScriptCode& operator=(const ScriptCode&) = delete;

  torch::jit::GraphFunction& function() const noexcept { return *function_; }
  const Variant& current() const noexcept { return current_; }
  /// What the operators know that stand at calls of this function by which callers run hooks of the file,
  /// too. Has an output if the function's class has such hooks.
  ScriptFunction& called() noexcept { return called_; }
  bool has_hooks_in_file() const noexcept { return called_.output != nullptr; }
  bool knows(const Variant& variant) const { return variants_.count(variant) != 0; }
  std::size_t variants() const noexcept { return variants_.size(); }
  /// For which sides the function itself has operators now.
  Sides sides() const noexcept { return sides_in(current_); }

  /// Adds everything that is installed to the current variant. Call for all functions before exchanging the
  /// first.
  void remember();
  /// Installs a variant, compiling it if needed. Exchange the callees first.
  void exchange(const Variant& variant);
  /// Throws if LibTorch does not execute the variant that `exchange` installed.
  void check() const;

  ScriptFunction known;
  std::vector<torch::jit::GraphFunction*> callees;
  std::vector<const ScriptCode*>
      hooked_in_file;     ///< the code of those callees whose class has hooks in the file
  Autocast asks;          ///< whether the code, callees included, queries the autocast state
  int doors = 0;          ///< number of hooked objects that have this function
  int inputs = 0;         ///< number of those whose hooks run before forward
  int outputs = 0;        ///< number of those whose hooks run after forward
  bool hookable = false;  ///< whether it may get the operators: a module's forward, or hooked once
  bool always = false;    ///< gets all operators as soon as anything around it has hooks

 private:
  static constexpr std::size_t kStates =
      4;  // autocast states: LibTorch keeps a graph and an executor for each
  struct Compiled {
    std::array<std::shared_ptr<torch::jit::Graph>, kStates> graphs;
    std::array<std::optional<torch::jit::GraphExecutor>, kStates> executors;
  };

  Sides sides_in(const Variant& variant) const noexcept;
  /// Whether the function's own graph needs operators: for itself, or where it calls others and their hooks.
  bool differs_in(const Variant& variant) const noexcept;
  std::shared_ptr<torch::jit::Graph> instrumented(const Variant& variant, Sides sides) const;
  void instrument_calls(torch::jit::Block& block, const Variant& variant) const;
  void instrument_call(torch::jit::Node& call, const ScriptCode& callee, const Variant& variant) const;
  Compiled in_place() const;  // call both with the function's lock held
  void put_in_place(const Compiled& compiled);
  void compile(Compiled& compiled, const Variant& variant) const;
  template <class Action>
  void for_each_state(Action&& action) const;

  torch::jit::GraphFunction* function_;
  ScriptFunction called_;
  Variant current_;
  std::map<Variant, Compiled> variants_;  // never shrinks: calls may be executing any of them
  std::vector<Compiled> strays_;          // belong to no variant
};

}  // namespace torchtap::torchscript::detail
