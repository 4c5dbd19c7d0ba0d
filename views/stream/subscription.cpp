// Checks subscriptions.
#include <cmath>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/subscription.hpp>

namespace torchtap::views::stream::detail {
void check(const std::string& call, const Subscription& subscription) {
  TORCH_CHECK_VALUE(subscription.every() >= 1, call, ": every(", subscription.every(),
                    ") is not a number of events; 1 takes each, 10 every tenth.");
  TORCH_CHECK_VALUE(std::isfinite(subscription.hz()) && subscription.hz() >= 0, call, ": hz(",
                    subscription.hz(), ") is not a number of frames a second; 0 sets no limit.");
  std::size_t bytes = 0;
  for (const auto& name : subscription.names()) bytes += name.size() + 2;
  TORCH_CHECK_VALUE(bytes <= 32768 && subscription.label().size() <= 256, call, ": the names take ", bytes,
                    " bytes, and the label ", subscription.label().size(),
                    "; at most 32768 and 256 can be sent. Say it with globs.");
}

}  // namespace torchtap::views::stream::detail
