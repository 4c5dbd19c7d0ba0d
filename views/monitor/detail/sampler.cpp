// Decides by a hash, and adapts how many forwards are sampled.
#include <algorithm>
#include <cmath>

#include <torchtap/base/split_mix.hpp>
#include <torchtap/views/monitor/detail/sampler.hpp>

namespace torchtap::views::monitor::detail {
bool Sampler::wants(std::int64_t number) const noexcept {
  return base::split_mix(static_cast<std::uint64_t>(number) + base::kGolden) %
             static_cast<std::uint64_t>(period()) ==
         0;
}

void Sampler::note(bool sampled, std::int64_t forward_ns, std::int64_t own_ns) noexcept {
  forward_.add(forward_ns);
  (sampled ? sampled_ : unsampled_).add(own_ns);
  if (sampled) adapt();
}

void Sampler::adapt() noexcept {
  if (cost_ >= 1) return;
  const double always = unsampled_.median(), more = sampled_.median() - always;
  const double left = cost_ * forward_.median() - always;
  const double wanted = left > 0 ? std::ceil(std::max(more, 0.0) / left) : static_cast<double>(most);
  const double clamped = std::clamp(wanted, 1.0, static_cast<double>(most));
  period_.store(static_cast<std::int64_t>(clamped), std::memory_order_relaxed);
}

void Sampler::Last::add(std::int64_t value) noexcept {
  values_[added_.fetch_add(1, std::memory_order_relaxed) % size].store(value, std::memory_order_relaxed);
}

double Sampler::Last::median() const noexcept {
  const std::size_t count = std::min(added_.load(std::memory_order_relaxed), size);
  if (count == 0) return 0;
  std::array<std::int64_t, size> values{};
  for (std::size_t i = 0; i < count; ++i) values[i] = values_[i].load(std::memory_order_relaxed);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(count));
  return static_cast<double>(*middle);
}

}  // namespace torchtap::views::monitor::detail
