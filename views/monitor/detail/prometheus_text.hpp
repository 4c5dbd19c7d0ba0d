#pragma once

// Prometheus' text format, version 0.0.4.

#include <string>
#include <utility>
#include <vector>

namespace torchtap::views::monitor::detail {

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  /// Begins a family of samples. `type`: "counter" or "gauge".
  void family(const std::string& name, const std::string& type, const std::string& help);
  /// A sample of it. Label values are escaped; NaN and infinities are written as the format has them.
  void sample(const Labels& labels, double value);
  const std::string& text() const noexcept { return text_; }

 private:
  std::string name_, text_;
};

}  // namespace torchtap::views::monitor::detail
