// Writes the message for a format that a reader does not know.
#include <c10/util/StringUtil.h>

#include <torchtap/base/format.hpp>

namespace torchtap::base {

std::string unreadable_format(std::int64_t found, std::int64_t known, const char* what) {
  if (found < 1) return c10::str("it has ", what, " ", found, ", but the first is 1; it is damaged");
  if (found <= known) return "";
  return c10::str("it was written by a newer torchtap (", what, " ", found, "; this one reads up to ", known,
                  "); update torchtap");
}

}  // namespace torchtap::base
