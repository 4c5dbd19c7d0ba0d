#include "fake_launcher.hpp"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fake_device/fake_device.hpp"

namespace on_host {
#include "modules.inc"  // module-inl.hpp for each type and all parts
}  // namespace on_host

namespace torchtap_test::fake {
namespace {

using torchtap::cuda::detail::Extent;

std::map<std::pair<std::string, int>, Module>& modules() {
  static auto* const all = new std::map<std::pair<std::string, int>, Module>;
  return *all;
}

std::atomic<std::int64_t> launched{0};
std::atomic<bool> refusing{false}, losing{false};

class FakeLauncher final : public torchtap::cuda::detail::Launcher {
 public:
  void* load(const std::string&, const std::vector<std::string>& options,
             const std::vector<const char*>& kernels, c10::DeviceIndex index) const override {
    TORCH_CHECK(capture(index) == 0, "operation not permitted when stream is capturing");
    static Module none{};
    if (kernels.empty()) return &none;
    std::string element;
    int parts = -1;
    for (const auto& option : options) {
      if (option.find("-DELEMENT=") == 0 && element.empty()) element = option.substr(10);
      if (option == "-DBFLOAT16") element = "bfloat16";
      if (option.find("-DPARTS=") == 0) parts = std::stoi(option.substr(8));
    }
    const auto found = modules().find({element, parts});
    TORCH_CHECK(found != modules().end(), "the fake device has no kernels for ", element, " and ", parts);
    return &found->second;
  }

  void launch(void* module, const char* kernel, Extent grid, Extent block, unsigned, c10::DeviceIndex index,
              void** arguments) const override {
    TORCH_CHECK(!refusing, "this device launches nothing");
    ++launched;
    if (losing && std::string(kernel) != "take_page") return;
    const Module& one = *static_cast<Module*>(module);
    const on_host::Index threads{static_cast<int>(block.x), static_cast<int>(block.y)},
        blocks{static_cast<int>(grid.x), static_cast<int>(grid.y)};
    const std::string name = kernel;
    if (name == "take_page") {
      auto* const page = *static_cast<long long**>(arguments[0]);
      auto* const to = *static_cast<long long**>(arguments[1]);
      return submit(index, [=] { one.take(threads, page, to); });
    }
    TORCH_CHECK(name == "add_one" || name == "add_many", "the fake device has no kernel ", name);
    const bool single = name == "add_one";
    const auto* const first = static_cast<const char*>(arguments[0]);
    auto copy =
        std::make_shared<std::vector<long long>>((single ? one.one : one.many) / sizeof(long long) + 1);
    std::memcpy(copy->data(), first, single ? one.one : one.many);
    submit(index, [=] { (single ? one.add_one : one.add_many)(blocks, threads, copy->data()); });
  }

  int multiprocessors(c10::DeviceIndex) const override { return 2; }
  std::uint64_t capture(c10::DeviceIndex index) const override { return fake::capture(index); }
};

}  // namespace

bool add_module(const std::string& element, int parts, Module module) {
  return modules().emplace(std::pair(element, parts), module).second;
}

const torchtap::cuda::detail::Launcher& launcher() {
  static const FakeLauncher one;
  return one;
}

void refuse_launches(bool refuse) {
  refusing = refuse;
}

void lose_launches(bool lose) {
  losing = lose;
}

std::int64_t launches() {
  return launched;
}

}  // namespace torchtap_test::fake
