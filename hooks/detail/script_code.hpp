#pragma once

#include <torch/csrc/jit/api/function_impl.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <torchtap/hooks/detail/script_call.hpp>
#include <vector>

namespace torchtap::hooks::detail {

/// Which functions, of one and of all that it calls, have the two operators compiled in. Sorted.
using Variant = std::vector<const torch::jit::GraphFunction*>;

/// Autocast on a CPU and on a GPU.
struct Autocast {
  bool cpu = false, gpu = false;
};

/// A function of a model, and what was compiled of it for each set of hooks. Guarded by the registry's lock.
///
/// Other threads may be calling the function at any moment. LibTorch gives them, under the function's own
/// lock, a reference to the executor that is in place, and runs that under no lock; so what was in place once
/// is kept as long as the function.
///
/// Locks. LibTorch takes the lock of a function and then, if it has to compile it, the locks of those that it
/// calls, and so on; no function calls itself, directly or not, so these never form a circle. We hold the
/// lock of one function at a time, to look at what is in place or to exchange it, and take no lock while we
/// hold it: whatever we compile is compiled before, under locks that LibTorch takes in its own order.
///
/// Consistency. Nobody else waits while functions are exchanged one by one, so LibTorch may compile one
/// meanwhile of which some callees are exchanged and some are not. With callees first this ends when the
/// function's own turn comes: what LibTorch has put in place since `remember` belongs to no variant and is
/// put aside; what it compiles later is of callees that are done.
class ScriptCode {
 public:
  explicit ScriptCode(torch::jit::GraphFunction& compiled);
  ScriptCode(const ScriptCode&) = delete;
  ScriptCode& operator=(const ScriptCode&) = delete;

  torch::jit::GraphFunction& function() const noexcept { return *function_; }
  const Variant& current() const noexcept { return current_; }
  bool knows(const Variant& variant) const { return variants_.count(variant) != 0; }
  std::size_t variants() const noexcept { return variants_.size(); }
  /// Whether the function has the operators itself, now.
  bool has_operators() const;

  /// Takes all that is in place as a part of the current variant. For all functions that will be exchanged,
  /// before the first one is.
  void remember();
  /// Puts a variant in place, compiled if need be. The callees have to be done.
  void exchange(const Variant& variant);
  /// Throws if LibTorch does not execute what `exchange` has put in place.
  void check() const;

  ScriptFunction known;
  std::vector<torch::jit::GraphFunction*> callees;
  Autocast asks;          ///< whether the code, that of callees included, asks for the state of autocast
  int doors = 0;          ///< hooked objects that have this function
  bool hookable = false;  ///< whether the operators may be compiled in: a module's forward, or hooked once
  bool always = false;    ///< has the operators as soon as anything around it has hooks

 private:
  static constexpr std::size_t kStates = 4;  // of autocast: LibTorch keeps a graph and an executor for each
  struct Compiled {
    std::array<std::shared_ptr<torch::jit::Graph>, kStates> graphs;
    std::array<std::optional<torch::jit::GraphExecutor>, kStates> executors;
  };

  Compiled in_place() const;  // both with the function's lock held
  void put_in_place(const Compiled& compiled);
  void compile(Compiled& compiled) const;
  template <class Action>
  void for_each_state(Action&& action) const;

  torch::jit::GraphFunction* function_;
  Variant current_;
  std::map<Variant, Compiled> variants_;  // never less: calls may be executing any of them
  std::vector<Compiled> strays_;          // of no variant
};

}  // namespace torchtap::hooks::detail
