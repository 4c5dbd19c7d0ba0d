#pragma once

// Tells whether an operation took random numbers, by looking at the CPU's generator.

#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <mutex>

namespace torchtap::views::trace::detail {

class Generator {
 public:
  Generator() { remember(); }

  /// The state as it was, if the generator has moved since the last look; else undefined.
  at::Tensor moved_from() {
    const at::mt19937_data_pod now = engine();
    const bool same = now.seed_ == seen_.seed_ && now.left_ == seen_.left_ && now.next_ == seen_.next_ &&
                      now.seeded_ == seen_.seeded_ && normals() == normals_ &&
                      std::memcmp(now.state_.data(), seen_.state_.data(), 64) == 0;
    if (same) return {};
    const at::Tensor before = state_;
    remember();
    return before;
  }

 private:
  at::CPUGeneratorImpl& implementation() const {
    return *at::check_generator<at::CPUGeneratorImpl>(generator_);
  }
  at::mt19937_data_pod engine() {
    const std::lock_guard lock(generator_.mutex());
    return implementation().engine().data();
  }
  auto normals() const {  // drawn in pairs, and kept
    return std::make_pair(implementation().next_float_normal_sample(),
                          implementation().next_double_normal_sample());
  }
  void remember() {
    seen_ = engine();
    normals_ = normals();
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }

  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::mt19937_data_pod seen_{};
  decltype(std::declval<const Generator&>().normals()) normals_;
  at::Tensor state_;
};

}  // namespace torchtap::views::trace::detail
