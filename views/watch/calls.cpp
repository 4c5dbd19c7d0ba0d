#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/views/watch/calls.hpp>

namespace torchtap::views::watch {

std::vector<hooks::Handle> watch_calls(const std::vector<model::ModuleRef>& modules,
                                       const std::weak_ptr<CallListener>& listener,
                                       const std::function<bool(std::size_t)>& wanted) {
  std::vector<hooks::Handle> handles;
  hooks::DeferredCompile batch;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const model::ModuleRef& module = modules[i];
    if (!(wanted ? wanted(i) : module.has_forward() && module.reachable())) continue;
    handles.push_back(hooks::attach(module, hooks::Kind::forward_pre,
                                    [listener, i, counted = counts(module)](hooks::Event& event) {
                                      // A call that does not count is between the one around it and those
                                      // inside.
                                      const int depth = 2 * calls_here() + (counted ? 0 : 1);
                                      if (const auto held = listener.lock())
                                        held->call_begins(i, depth, event);
                                    }));
    handles.push_back(hooks::attach(module, hooks::Kind::forward_output, [listener, i](hooks::Event& event) {
      if (const auto held = listener.lock()) held->call_ends(i, event);
    }));
  }
  batch.commit();
  return handles;
}

Nesting::Nesting(const std::vector<model::ModuleRef>& modules)
    : scripted_(!modules.empty() && modules.front().scripted()), around_(modules.size()) {
  std::unordered_map<std::string, std::size_t> by_path;
  for (std::size_t i = 0; i < modules.size(); ++i) by_path.emplace(modules[i].path(), i);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    std::vector<std::string> paths{modules[i].path()};
    if (scripted_) paths.insert(paths.end(), modules[i].aliases().begin(), modules[i].aliases().end());
    std::set<std::size_t> around;  // in order of the walk: the outer before the inner
    for (std::string path : paths) {
      while (!path.empty()) {
        const auto dot = path.rfind('.');
        path.resize(dot == std::string::npos ? 0 : dot);
        const auto outer = by_path.find(path);
        if (outer != by_path.end()) around.insert(outer->second);
      }
    }
    around_[i].assign(around.begin(), around.end());
  }
}

bool Nesting::ended(std::size_t open, int open_depth, std::size_t module, int depth) const {
  // TorchScript's calls are not counted; it knows no recursion, and calls attributes only.
  if (!scripted_) return open_depth >= depth;
  return std::find(around_[module].begin(), around_[module].end(), open) == around_[module].end();
}

bool counts(const model::ModuleRef& module) {
  return hooks::extend::counts_in_depth(module);
}

int calls_here() noexcept {
  return hooks::extend::call_depth();
}

}  // namespace torchtap::views::watch
