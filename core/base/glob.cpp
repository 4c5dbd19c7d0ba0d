// Matches globs in bounded time, which fnmatch does not promise: readers of a stream choose the glob.
#include <algorithm>
#include <cwchar>
#include <cwctype>
#include <string_view>

#include <torchtap/base/glob.hpp>

namespace torchtap::base {
namespace {

/// The length of the first item of a glob other than `*`, and whether it matches a character.
struct Item {
  std::size_t length;
  bool matches;
};

/// A set, "[a-z]", from its bracket on. Without a closing bracket it is the character "[".
Item set_item(std::string_view glob, char character) {
  std::size_t at = 1;
  const bool inverted = at < glob.size() && (glob[at] == '!' || glob[at] == '^');
  if (inverted) ++at;
  bool found = false;
  const auto one = [&] {  // a backslash makes the next character literal
    if (glob[at] == '\\' && at + 1 < glob.size()) ++at;
    return static_cast<unsigned char>(glob[at++]);
  };
  for (bool first = true; at < glob.size() && (first || glob[at] != ']'); first = false) {
    const std::size_t end = glob.substr(at, 2) == "[:"
                                ? glob.find_first_not_of("abcdefghijklmnopqrstuvwxyz", at + 2)
                                : glob.size();
    if (glob.substr(std::min(end, glob.size()), 2) == ":]") {
      const std::wctype_t type = std::wctype(std::string(glob.substr(at + 2, end - at - 2)).c_str());
      found = found || std::iswctype(std::btowc(static_cast<unsigned char>(character)), type) != 0;
      at = end + 2;
      continue;
    }
    const unsigned char low = one();
    const bool range = at + 1 < glob.size() && glob[at] == '-' && glob[at + 1] != ']';
    if (range) ++at;
    const unsigned char high = range ? one() : low;
    const auto value = static_cast<unsigned char>(character);
    found = found || (low <= value && value <= high);
  }
  if (at >= glob.size()) return {1, character == '['};
  return {at + 1, found != inverted};
}

Item first_item(std::string_view glob, char character) {
  if (glob[0] == '?') return {1, true};
  if (glob[0] == '[') return set_item(glob, character);
  if (glob[0] == '\\' && glob.size() > 1) return {2, glob[1] == character};
  return {1, glob[0] == character};
}

}  // namespace

bool is_glob(const std::string& text) {
  return text.find_first_of("*?[") != std::string::npos;
}

bool matches_glob(const std::string& glob, const std::string& text) {
  const std::string_view pattern = glob;
  std::size_t g = 0;
  std::size_t t = 0;
  std::size_t star = std::string::npos;  // the last `*`, which may take more if the rest does not match
  std::size_t taken = 0;
  while (t < text.size()) {
    if (g < pattern.size() && pattern[g] == '*') {
      star = g++;
      taken = t;
      continue;
    }
    const Item item = g < pattern.size() ? first_item(pattern.substr(g), text[t]) : Item{0, false};
    if (item.matches) {
      g += item.length;
      ++t;
    } else if (star != std::string::npos) {
      g = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (g < pattern.size() && pattern[g] == '*') ++g;
  return g == pattern.size();
}

}  // namespace torchtap::base
