#include <fnmatch.h>

#include <torchtap/base/glob.hpp>

namespace torchtap::base {

bool is_glob(const std::string& text) {
  return text.find_first_of("*?[") != std::string::npos;
}

bool matches_glob(const std::string& glob, const std::string& text) {
  return fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

}  // namespace torchtap::base
