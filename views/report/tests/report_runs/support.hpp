#pragma once

#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torchtap/views/report/report.hpp>

#include "tests/only_where.hpp"
#include "tests/support.hpp"
#include "zoo/resnet.hpp"

/// What the tests of reports share.
namespace support {

namespace nn = torch::nn;
namespace report = torchtap::views::report;

/// Nanoseconds that tests let pass by themselves.
struct FakeClock {
  std::shared_ptr<std::int64_t> now = std::make_shared<std::int64_t>(0);

  void pass(std::int64_t nanoseconds) const { *now += nanoseconds; }
  report::ReportOptions options() const {
    return report::ReportOptions().clock([counted = now] { return *counted; });
  }
};

/// The row at a path, or at an alias.
// By value: GCC 14 takes a reference to a temporary path for a reference that dangles.
inline const report::ModuleRow& row(const report::ModuleRow& root, std::string_view path) {
  if (root.path == path) return root;
  for (const auto& child : root.children) {
    if (path == child.path || path.substr(0, child.path.size() + 1) == child.path + ".")
      return row(child, path);
  }
  throw std::runtime_error("no row at " + std::string(path));
}
inline const report::ModuleRow& row(const report::Measurements& results, std::string_view path) {
  return row(results.root, path);
}

inline std::int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

/// Calls `visit` with each row, the root first.
template <class Function>
void for_each_row(const report::ModuleRow& root, Function&& visit) {
  visit(root);
  for (const auto& child : root.children) for_each_row(child, visit);
}

/// A decorator of tests for which the calls of modules in C++ have to be seen.
inline auto where_modules_are_reached() {
  const auto reached = [] {
    zoo::ResNet18 net(zoo::ResNet18Options().num_classes(2).width(8));
    return row(report::Report(*net).results(), "conv1").reachable;
  };
  return torchtap_test::only_where(reached, "torchtap::transparent is not built");
}

inline std::string model_file(const std::string& name) {
  return std::string(TORCHTAP_TEST_REPORT_MODELS) + "/" + name + ".pt";
}

}  // namespace support
