#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/views/monitor/detail/chosen.hpp>

namespace torchtap::views::monitor::detail {
namespace {

/// Whether one of the modules is around the module.
bool is_inside(const std::vector<std::size_t>& around, const std::vector<model::ModuleRef>& modules,
               const model::ModuleRef& module) {
  return std::any_of(around.begin(), around.end(), [&](std::size_t one) {
    const std::string& outer = modules[one].path();
    return module.path().size() > outer.size() && module.path().compare(0, outer.size(), outer) == 0 &&
           module.path()[outer.size()] == '.';
  });
}

}  // namespace

Chosen choose(const std::vector<model::ModuleRef>& modules, const selectors::Selector& selector) {
  TORCH_CHECK_VALUE(!modules.empty(), "views::monitor::Monitor: there are no modules to watch.");
  Chosen all;
  std::vector<bool> wanted(modules.size(), false);
  wanted[0] = modules[0].has_forward();
  for (const model::ModuleRef& module : selectors::select(modules, selector)) {
    const auto at = std::find(modules.begin(), modules.end(), module);
    wanted[static_cast<std::size_t>(at - modules.begin())] = true;
  }
  std::vector<model::ModuleRef> asked;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (!wanted[i]) continue;
    asked.push_back(modules[i]);
    if (modules[i].reachable()) {
      all.modules.push_back(i);
    } else {
      ++all.unreachable;
    }
  }
  if (all.modules.empty()) hooks::check_reachable(asked);  // which says why
  TORCH_CHECK_VALUE(!all.modules.empty(), "views::monitor::Monitor: no module of ", modules[0].type(),
                    " can be watched; expected at least one with a forward that hooks reach "
                    "(docs/compatibility.md).");
  if (all.modules[0] != 0) {
    for (std::size_t i = 1; i < modules.size(); ++i) {
      if (modules[i].has_forward() && modules[i].reachable() && !is_inside(all.tops, modules, modules[i]))
        all.tops.push_back(i);
    }
  }
  return all;
}

}  // namespace torchtap::views::monitor::detail
