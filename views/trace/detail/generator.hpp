#pragma once

// Tells whether an operation took random numbers, by looking at the CPU's generator.

#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <mutex>
#include <utility>

namespace torchtap::views::trace::detail {

class Generator {
 public:
  Generator() { remember(); }

  /// The state as it was, if the generator has moved since the last look; else undefined.
  at::Tensor moved_from() {
    const at::mt19937_data_pod now = engine();
    const bool stayed = now.seed_ == seen_.seed_ && now.left_ == seen_.left_ && now.next_ == seen_.next_ &&
                        now.seeded_ == seen_.seeded_ && normals() == normals_ &&
                        std::memcmp(now.state_.data(), seen_.state_.data(), 64) == 0;
    if (stayed) return {};
    at::Tensor before = state_;
    remember();
    return before;
  }

 private:
  static constexpr float no_sample = 1e30F;  // no normal number comes near

  at::CPUGeneratorImpl& implementation() const {
    return *at::check_generator<at::CPUGeneratorImpl>(generator_);
  }
  at::mt19937_data_pod engine() {
    const std::lock_guard lock(generator_.mutex());
    return implementation().engine().data();
  }
  /// Normal numbers are drawn in pairs; `no_sample` where no second one waits.
  std::pair<float, double> normals() const {
    const auto single = implementation().next_float_normal_sample();
    const auto twofold = implementation().next_double_normal_sample();
    return {single ? *single : no_sample, twofold ? *twofold : no_sample};
  }
  void remember() {
    seen_ = engine();
    normals_ = normals();
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }

  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::mt19937_data_pod seen_{};
  std::pair<float, double> normals_;
  at::Tensor state_;
};

}  // namespace torchtap::views::trace::detail
