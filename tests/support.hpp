#pragma once

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/remove_folder.hpp>

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
  ~TemporaryDirectory() { torchtap::base::remove_folder(path_.string()); }
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

/// The message of the LibTorch exception that `call` throws, without its backtrace; empty if it throws none.
template <class F>
std::string error_of(const F& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Whether `got` has the shape and, within `rtol`, the values of `want`; NaN equals NaN. On failure the
/// message states the difference.
inline boost::test_tools::assertion_result close(const at::Tensor& got, const at::Tensor& want, double rtol,
                                                 double atol = 0.0) {
  boost::test_tools::assertion_result result(false);
  if (got.sizes() != want.sizes()) {
    result.message() << "got shape " << got.sizes() << ", want " << want.sizes();
    return result;
  }
  const auto wide = got.is_complex() || want.is_complex() ? at::kComplexDouble : at::kDouble;
  const auto a = got.to(wide);
  const auto b = want.to(wide);
  if (at::allclose(a, b, rtol, atol == 0.0 ? rtol : atol, /*equal_nan=*/true)) return true;
  result.message() << "got " << got.toString() << got.sizes() << ", want " << want.toString() << want.sizes();
  if (got.numel() != 0) {
    result.message() << ", max |got-want| = " << (a - b).abs().max().item<double>() << " (rtol " << rtol
                     << ")";
    if (got.numel() <= 16) result.message() << "\ngot " << a << "\nwant " << b;
  }
  return result;
}

}  // namespace torchtap_test
