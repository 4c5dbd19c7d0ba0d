#pragma once

/// TensorBoard's event files.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::tensorboard {

/// A histogram as TensorBoard has it: `counts[i]` values in [limits[i-1], limits[i]).
struct TORCHTAP_API HistogramValue {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

/// Of the bins of a `LogHistogram` (low, high and count of each in ascending order) and the number of zeros:
/// unused bins between used ones become buckets of 0, zeros the bucket between the largest negative and the
/// smallest positive bin.
TORCHTAP_API HistogramValue histogram_of(const std::vector<double>& low, const std::vector<double>& high,
                                         const std::vector<double>& counts, double zeros);

/// Writes `events.out.tfevents.SECONDS.HOST.PID.NUMBER` into a folder, which is made. One thread at a time.
class TORCHTAP_API EventFile {
 public:
  /// Throws `c10::Error` if it cannot be made.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(EventFile&&) noexcept;

  /// Throw `c10::Error` if they cannot be written. `seconds`: since 1970; 0: now.
  void scalar(const std::string& tag, std::int64_t step, double value, double seconds = 0);
  void histogram(const std::string& tag, std::int64_t step, const HistogramValue& value, double seconds = 0);
  void flush();
  const std::string& file() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace torchtap::views::tensorboard
