// Checks subscriptions, and matches globs.
#include <cmath>
#include <string_view>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/subscription.hpp>

namespace torchtap::views::stream::detail {
namespace {

/// The length of the first item of a glob other than `*`, and whether it matches `character`.
struct Item {
  std::size_t length;
  bool matches;
};

/// A set, "[a-z]", from its bracket on. Without a closing bracket it is the character "[".
Item set_item(std::string_view glob, char character) noexcept {
  std::size_t at = 1;
  const bool inverted = at < glob.size() && (glob[at] == '!' || glob[at] == '^');
  if (inverted) ++at;
  bool found = false;
  for (bool first = true; at < glob.size() && (first || glob[at] != ']'); first = false) {
    const bool range = at + 2 < glob.size() && glob[at + 1] == '-' && glob[at + 2] != ']';
    const char low = glob[at];
    const char high = range ? glob[at + 2] : low;
    found = found || (low <= character && character <= high);
    at += range ? 3 : 1;
  }
  if (at >= glob.size()) return {1, character == '['};
  return {at + 1, found != inverted};
}

Item first_item(std::string_view glob, char character) noexcept {
  if (glob[0] == '?') return {1, true};
  if (glob[0] == '[') return set_item(glob, character);
  if (glob[0] == '\\' && glob.size() > 1) return {2, glob[1] == character};
  return {1, glob[0] == character};
}

}  // namespace

bool glob_matches(const std::string& glob, const std::string& path) noexcept {
  const std::string_view pattern = glob;
  std::size_t g = 0;
  std::size_t p = 0;
  std::size_t star = std::string::npos;  // the last `*`, which may take more if the rest does not match
  std::size_t taken = 0;
  while (p < path.size()) {
    if (g < pattern.size() && pattern[g] == '*') {
      star = g++;
      taken = p;
      continue;
    }
    const Item item = g < pattern.size() ? first_item(pattern.substr(g), path[p]) : Item{0, false};
    if (item.matches) {
      g += item.length;
      ++p;
    } else if (star != std::string::npos) {
      g = star + 1;
      p = ++taken;
    } else {
      return false;
    }
  }
  while (g < pattern.size() && pattern[g] == '*') ++g;
  return g == pattern.size();
}

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
