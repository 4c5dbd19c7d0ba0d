// Checks that text is UTF-8, and that a name has no zero bytes.
#include <torchtap/base/utf8.hpp>
#include <torchtap/storage/detail/utf8.hpp>

namespace torchtap::storage::detail {

bool is_utf8(const std::string& text) {
  return base::first_not_utf8(text) == std::string::npos;
}

bool is_name(const std::string& text) {
  return is_utf8(text) && text.find('\0') == std::string::npos;
}

}  // namespace torchtap::storage::detail
