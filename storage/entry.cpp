// Tells what is beside the rows of a dump from modules.
#include <string_view>

#include <torchtap/storage/entry.hpp>

namespace torchtap::storage {

bool is_calls(const std::string& kind) {
  constexpr std::string_view kCalls = ".calls";
  return kind.size() > kCalls.size() && kind.compare(kind.size() - kCalls.size(), kCalls.size(), kCalls) == 0;
}

bool is_beside(const std::string& kind) {
  return kind == "Beside" || kind == "Place" || is_calls(kind);
}

}  // namespace torchtap::storage
