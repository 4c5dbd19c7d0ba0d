#pragma once

// What outlives a model, so that one that is made anew goes on with it.

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torchtap/model/module_ref.hpp>

namespace torchtap::tools::preload {

/// The paths and types of a model's modules, and whether their calls can be seen; and the method.
using ModelKind = std::vector<std::tuple<std::string, std::string, bool>>;

inline ModelKind kind_of(const std::vector<model::ModuleRef>& modules) {
  ModelKind kind;
  for (const model::ModuleRef& module : modules) {
    kind.emplace_back(module.path(), module.type(), module.reachable());
  }
  kind.emplace_back(modules.front().method(), "", false);
  return kind;
}

/// The last few `Kept`, each with a `kind`, of models that the program destroyed.
template <class Kept>
class Resting {
 public:
  /// Returns the one that was there longest if there are too many, else null.
  std::unique_ptr<Kept> add(std::unique_ptr<Kept> kept) {
    constexpr std::size_t kMost = 8;
    all_.push_back(std::move(kept));
    return all_.size() > kMost ? take(all_.begin()) : nullptr;
  }
  /// Takes out the one of the kind; null if there is none.
  std::unique_ptr<Kept> take(const ModelKind& kind) {
    return take(std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->kind == kind; }));
  }
  /// Takes out the one that was there longest; null if there is none.
  std::unique_ptr<Kept> take() { return take(all_.begin()); }
  const std::deque<std::unique_ptr<Kept>>& all() const noexcept { return all_; }

 private:
  std::unique_ptr<Kept> take(typename std::deque<std::unique_ptr<Kept>>::iterator at) {
    if (at == all_.end()) return nullptr;
    std::unique_ptr<Kept> taken = std::move(*at);
    all_.erase(at);
    return taken;
  }

  std::deque<std::unique_ptr<Kept>> all_;
};

}  // namespace torchtap::tools::preload
