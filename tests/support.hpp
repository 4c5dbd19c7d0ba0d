#pragma once

#include <boost/test/unit_test.hpp>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>

/// What the tests of several rooms need.
namespace torchtap_test {

namespace fs = std::filesystem;

/// A new empty directory, gone with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (fs::temp_directory_path() / "torchtap-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

/// A predicate for BOOST_CHECK_EXCEPTION: the message contains all of `parts`.
inline auto says(std::vector<std::string> parts) {
  return [parts = std::move(parts)](const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    for (const auto& part : parts) {
      if (text.find(part) == std::string::npos) {
        BOOST_TEST_MESSAGE("no \"" << part << "\" in: " << text);
        return false;
      }
    }
    return true;
  };
}

}  // namespace torchtap_test
