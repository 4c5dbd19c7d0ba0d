#include <c10/util/Exception.h>

#include <torchtap/views/explorer/options.hpp>

namespace torchtap::views::explorer {

ExplorerOptions& ExplorerOptions::every(std::int64_t steps) {
  TORCH_CHECK_VALUE(steps > 0, "views::explorer::ExplorerOptions::every: expected at least 1 step, got ",
                    steps, ".");
  every_ = steps;
  return *this;
}

ExplorerOptions& ExplorerOptions::overhead(double share) {
  TORCH_CHECK_VALUE(
      share > 0 && share <= 1,
      "views::explorer::ExplorerOptions::overhead: expected a share of the time above 0 and up to 1, got ",
      share, "; 0.02 is 2 %.");
  overhead_ = share;
  every_ = 0;
  return *this;
}

ExplorerOptions& ExplorerOptions::columns(std::int64_t count) {
  TORCH_CHECK_VALUE(
      count >= 2, "views::explorer::ExplorerOptions::columns: expected at least 2 columns, got ", count, ".");
  columns_ = count;
  return *this;
}

ExplorerOptions& ExplorerOptions::disk(std::int64_t bytes) {
  TORCH_CHECK_VALUE(
      bytes >= 0,
      "views::explorer::ExplorerOptions::disk: expected a number of bytes, or 0 for no bound, got ", bytes,
      ".");
  disk_ = bytes;
  return *this;
}

}  // namespace torchtap::views::explorer
