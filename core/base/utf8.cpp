// Checks UTF-8 byte by byte.
#include <cstdio>

#include <torchtap/base/utf8.hpp>

namespace torchtap::base {

std::size_t first_not_utf8(const std::string& text, std::size_t from) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = from; i < text.size();) {
    const unsigned lead = byte(i);
    const std::size_t more = lead < 0x80                   ? 0
                             : lead >= 0xC2 && lead < 0xE0 ? 1
                             : lead >= 0xE0 && lead < 0xF0 ? 2
                             : lead >= 0xF0 && lead < 0xF5 ? 3
                                                           : 4;
    if (more == 4 || more >= text.size() - i) return i;
    for (std::size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    }
    if (more >= 2) {  // overlong, a surrogate, or beyond the last code point
      const unsigned second = byte(i + 1);
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
          (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90)) {
        return i;
      }
    }
    i += more + 1;
  }
  return std::string::npos;
}

std::string utf8_text(const std::string& text) {
  std::string good;
  std::size_t at = 0;
  for (std::size_t bad = 0; (bad = first_not_utf8(text, at)) != std::string::npos; at = bad + 1) {
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\%03o", static_cast<unsigned char>(text[bad]));
    good += text.substr(at, bad - at) + escape;
  }
  return good + text.substr(at);
}

}  // namespace torchtap::base
