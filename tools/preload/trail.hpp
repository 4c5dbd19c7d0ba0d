#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

namespace torchtap::preload {

/// The modules that one thread has called last. A module that is made anew in every forward is known by
/// what was called before it: nothing else about it stays the same.
class Trail {
 public:
  static constexpr std::int64_t kNowhere = -1;

  /// That of this thread in the recording `session`; what it has of another one is forgotten.
  static Trail& here(std::uint64_t session) {
    static thread_local Trail trail;
    if (trail.session_ != session) trail = Trail();
    trail.session_ = session;
    return trail;
  }

  /// The module that is `place` was called.
  void follow(std::int64_t place, std::weak_ptr<const torch::nn::Module> module) {
    if (!steps_.empty() && steps_.back().place == place) {
      steps_.back() = {place, std::move(module), {}};
      return;
    }
    steps_.push_back({place, std::move(module), {}});
    if (steps_.size() > kLongest) steps_.pop_front();
  }

  /// Where the last module that is still there was, `kNowhere` if none is.
  std::int64_t anchor() {
    while (!steps_.empty() && steps_.back().module.expired()) steps_.pop_back();
    return steps_.empty() ? kNowhere : steps_.back().place;
  }

  /// How many new modules of this `kind` were called since; counts one more. 0 where there is no anchor.
  std::size_t count(const std::string& kind) {
    return anchor() == kNowhere ? 0 : steps_.back().since[kind]++;
  }

 private:
  static constexpr std::size_t kLongest = 16;

  struct Step {
    std::int64_t place;
    std::weak_ptr<const torch::nn::Module> module;
    std::unordered_map<std::string, std::size_t> since;
  };

  std::uint64_t session_ = 0;
  std::deque<Step> steps_;
};

}  // namespace torchtap::preload
