#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/support.hpp"

namespace torchtap_test {

/// Runs a script beside this file with these arguments; what it prints is in the log. Whether it ended with
/// 0.
inline bool script(const std::string& name, const std::string& arguments) {
  const std::string command =
      std::string("\"" TORCHTAP_TEST_PYTHON "\" \"" TORCHTAP_TEST_SURFACES "/") + name + "\" " + arguments;
  return std::system(command.c_str()) == 0;
}

}  // namespace torchtap_test
