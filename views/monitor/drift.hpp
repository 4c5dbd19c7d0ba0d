#pragma once

/// Whether a distribution differs from a reference by more than the reference differs from itself.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::views::monitor {

/// When a window has drifted.
struct TORCHTAP_API DriftOptions {
  /// At most this many false alarms a window and tensor, on data like the reference; above 0, at most 0.01.
  double false_alarms = 1e-6;
  /// The least population stability index of an alarm, so that a small drift never alarms merely because
  /// there is more data.
  double size = 0.02;
  /// Rows of a window. Windows of other lengths are judged, too: longer ones by the limit for this length,
  /// shorter ones by their own.
  std::int64_t rows = 256;
  /// Fewer blocks than this are not judged.
  std::int64_t least_blocks = 100;
};

/// The difference of a window from the reference. Values that are not finite are left out of both.
struct TORCHTAP_API Drift {
  /// Hotelling's T² of about ten masses, and its limit for the rate of false alarms. Infinite if more values
  /// than chance explains are where the reference has no bins, or if masses that are equal in all blocks of
  /// the reference differ. The limit is infinite where nothing is judged: where the test has a `why_not`, and
  /// of windows that have too few blocks to be told from a rare event.
  double t2 = 0, limit = 0;
  double psi =
      0;  ///< population stability index of the same masses, less its mean on windows of the reference
  double shift = 0;       ///< of the mean, in standard deviations of the reference; infinite if these are 0
  double ratio = 1;       ///< ratio of the standard deviations; infinite if the reference's is 0
  double zeros = 0;       ///< change of the share of zeros
  std::int64_t rows = 0;  ///< of the window
  bool drifted = false;   ///< t2 > limit and psi >= size
};

/// The test of one tensor against its reference. Thread-safe once it is made; making it takes some tenths of
/// a second.
///
/// The bins of the reference are cut into about ten groups of equal mass; zeros are a group if they are more
/// than 2 %. T² compares the masses of a window with the reference's by the covariance of the reference's
/// blocks (Hotelling 1931), so that correlation between elements and rows is accounted for. Its limit is
/// fitted to the tail of windows that are drawn from the blocks, always the same ones.
///
/// The only assumption is that blocks of the reference and of windows are alike, or vary in the same order.
/// Few blocks of a window that are unlike all of the reference's may be a rare event and are left out; they
/// count when there are more of them than an event of any rate would give, once it did not occur in the
/// reference. Values where the reference has no bins count likewise. If blocks in a row vary more together
/// than shuffled ones, all blocks are worth fewer by the ratio. views/monitor/README.md has the rates that
/// were measured.
class TORCHTAP_API DriftTest {
 public:
  /// `reference`: the results of `reductions::Blocks`. Throws `c10::ValueError` for others, and for options
  /// out of range.
  explicit DriftTest(const core::Results& reference, const DriftOptions& options = {});
  ~DriftTest();
  DriftTest(DriftTest&&) noexcept;
  DriftTest& operator=(DriftTest&&) noexcept;

  /// Why it does not judge ("37 blocks; 100 are needed", "100 blocks, which resemble those before them so
  /// much that they are worth 12; 40 are needed"); empty if it does.
  const std::string& why_not() const noexcept;
  /// The reference's blocks that have finite values.
  std::int64_t blocks() const noexcept;
  /// Blocks of the reference's size that a window has at least; of fewer, nothing is judged.
  std::int64_t least_window() const noexcept;
  /// Compares a window: results of `Blocks`, or of `LogHistogram(3)` over everything with `rows` rows, which
  /// is taken for as many equal blocks. Throws `c10::ValueError` for other results.
  Drift compare(const core::Results& window, std::int64_t rows = 0) const;
  /// Compares several windows as one.
  Drift compare(const std::vector<core::Results>& windows, std::int64_t rows = 0) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace torchtap::views::monitor
