#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include <torchtap/base/of_thread.hpp>

namespace torchtap::tools::preload {

/// The modules that one thread called last. A module that is created anew in every forward is identified by
/// the module called before it, since nothing else about it stays the same.
class Trail {
 public:
  static constexpr std::int64_t kNowhere = -1;

  /// This thread's trail in the recording `session`; clears the trail of an earlier recording.
  static Trail& here(std::uint64_t session) {
    Trail& trail = base::of_thread<Trail>();
    if (trail.session_ != session) trail = Trail();
    trail.session_ = session;
    return trail;
  }

  /// Notes a call of the module with the number `place`.
  void follow(std::int64_t place, std::weak_ptr<const torch::nn::Module> module) {
    if (!steps_.empty() && steps_.back().place == place) {
      steps_.back() = {place, std::move(module), {}};
      return;
    }
    steps_.push_back({place, std::move(module), {}});
    if (steps_.size() > kLongest) steps_.pop_front();
  }

  /// The place of the last called module that still exists; `kNowhere` if there is none.
  std::int64_t anchor() {
    while (!steps_.empty() && steps_.back().module.expired()) steps_.pop_back();
    return steps_.empty() ? kNowhere : steps_.back().place;
  }

  /// The number of new modules of this `kind` called since the anchor; then counts one more. 0 without an
  /// anchor.
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

}  // namespace torchtap::tools::preload
