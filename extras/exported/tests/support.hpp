#pragma once

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#include <torchtap/exported/exported.hpp>
#include <torchtap/storage/file.hpp>

#include "tests/support.hpp"

namespace torchtap_test {

/// The path of a file that models.py wrote.
inline std::string file(const std::string& name) {
  const char* const folder = std::getenv("TORCHTAP_TEST_EXPORTED_FOLDER");
  return std::string(folder != nullptr ? folder : TORCHTAP_TEST_EXPORTED) + "/" + name;
}

/// The device for which the packages were compiled.
inline at::Device package_device() {
  const char* const name = std::getenv("TORCHTAP_TEST_EXPORTED_DEVICE");
  return at::Device(name != nullptr ? name : "cpu");
}

/// A precondition of tests.
inline boost::test_tools::assertion_result on_the_cpu(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(package_device().is_cpu());
  result.message() << "not for packages of other devices";
  return result;
}

/// What Python's own hooks saw of the eager model.
class Reference {
 public:
  explicit Reference(const std::string& name)
      : data_(torchtap::storage::load_value(file(name + ".data.pt"))) {
    at::globalContext().setAllowTF32CuDNN(false);  // as models.py
  }

  std::vector<at::Tensor> inputs() const { return list("inputs"); }
  std::vector<at::Tensor> outputs() const { return list("outputs"); }
  /// The tensor that a hook of this kind ("pre", "in", "out") saw; undefined if it saw none.
  at::Tensor seen(const std::string& kind, const std::string& path, std::int64_t call = 0,
                  std::int64_t slot = 0) const {
    const std::string key = c10::str(kind, ' ', path, '#', call, '#', slot);
    for (const auto& [name, value] : data_.at("seen").dict()) {
      if (name == key) return value.tensor().to(package_device());
    }
    return {};
  }

 private:
  std::vector<at::Tensor> list(const std::string& name) const {
    std::vector<at::Tensor> tensors;
    for (const auto& value : data_.at(name).list()) tensors.push_back(value.tensor().to(package_device()));
    return tensors;
  }

  torchtap::core::Value data_;
};

inline bool identical(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes() != b[i].sizes() || !at::equal(a[i], b[i])) return false;
  }
  return true;
}

/// Equal but for rounding: compiled kernels add in another order than eager ones and keep intermediate
/// results in registers, of which eager mode rounds those of bfloat16.
inline bool close(const at::Tensor& value, const at::Tensor& expected) {
  if (!value.defined() || !expected.defined() || value.sizes() != expected.sizes() ||
      value.dtype() != expected.dtype()) {
    return false;
  }
  if (!value.is_floating_point()) return at::equal(value, expected);
  const double relative = value.scalar_type() == at::kBFloat16 ? 0.03 : 1e-4;
  const double largest = expected.numel() == 0 ? 0 : expected.abs().max().item<double>();
  return at::allclose(value.to(at::kDouble), expected.to(at::kDouble), relative, relative * largest);
}

}  // namespace torchtap_test
