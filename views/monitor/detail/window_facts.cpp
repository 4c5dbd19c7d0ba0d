// Adds up blocks.
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <torchtap/views/monitor/detail/window_facts.hpp>

namespace torchtap::views::monitor::detail {

void set_facts(rules::Facts& facts, const core::Results& blocks, double scale) {
  const auto total = [&](const char* name) {
    const at::Tensor all = blocks.at(name).to(at::kDouble).contiguous();
    double sum = 0;
    for (std::int64_t i = 0; i < all.numel(); ++i) sum += all.data_ptr<double>()[i];
    return sum;
  };
  facts.nan = total("nan");
  facts.inf = total("negative_infinity") + total("positive_infinity");
  facts.zeros = total("zeros");

  const at::Tensor low = blocks.at("low").to(at::kDouble).contiguous(),
                   high = blocks.at("high").to(at::kDouble).contiguous(),
                   counts = blocks.at("counts").sum(0).to(at::kDouble).contiguous();
  double finite = *facts.zeros;
  facts.bins.clear();
  for (std::int64_t i = 0; i < counts.numel(); ++i) {
    const double count = counts.data_ptr<double>()[i];
    finite += count;
    if (count == 0) continue;
    facts.bins.push_back({low.data_ptr<double>()[i] / scale, high.data_ptr<double>()[i] / scale, count});
  }
  facts.count = finite + *facts.nan + *facts.inf;
  if (finite == 0) return;

  const auto extreme = [&](const char* name, bool least) {
    const at::Tensor all = blocks.at(name).to(at::kDouble).contiguous();
    double value = std::numeric_limits<double>::quiet_NaN();  // of a block without finite elements
    for (std::int64_t i = 0; i < all.numel(); ++i) {
      const double one = all.data_ptr<double>()[i];
      value = least ? std::fmin(value, one) : std::fmax(value, one);
    }
    return value / scale;
  };
  facts.min = extreme("min", true);
  facts.max = extreme("max", false);
  const double mean = total("sum") / finite / scale;
  const double square = total("sum_squares") / finite / (scale * scale);
  facts.mean = mean;
  facts.rms = std::sqrt(square);
  facts.std = std::sqrt(std::max(square - mean * mean, 0.0));
}

}  // namespace torchtap::views::monitor::detail
