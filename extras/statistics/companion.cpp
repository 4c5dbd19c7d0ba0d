// Resolves the paths of companions, and finds the modules that give them.

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/statistics/companion.hpp>
#include <torchtap/statistics/detail/fold_paired.hpp>

namespace torchtap::recorders {
namespace {

/// "./router" beside "blocks.0.moe" as "blocks.0.moe.router".
std::string resolved(const std::string& path, const std::string& beside) {
  std::vector<std::string> parts;
  std::istringstream recorded(path.rfind('/', 0) == 0 ? "" : beside), steps(path);
  for (std::string part; std::getline(recorded, part, '.');) parts.push_back(part);
  for (std::string step; std::getline(steps, step, '/');) {
    if (step.empty() || step == ".") continue;
    if (step != "..") {
      parts.push_back(step);
      continue;
    }
    TORCH_CHECK_VALUE(!parts.empty(), "recorders::RecorderOptions::with: \"", path,
                      "\" leads above the root from \"", beside, "\".");
    parts.pop_back();
  }
  std::string all;
  for (const auto& part : parts) all += (all.empty() ? "" : ".") + part;
  return all;
}

}  // namespace

Companion::Companion(bool of_output, std::string path, std::int64_t slot,
                     std::vector<model::ModuleRef> modules)
    : of_output_(of_output), path_(std::move(path)), slot_(slot), modules_(std::move(modules)) {
  TORCH_CHECK_VALUE(!path_.empty() && slot_ >= 0, "recorders::", describe(),
                    ": expected a path (\".\" is the recorded module, \"/\" the root) and a slot from 0 on.");
}

Companion Companion::map(std::function<at::Tensor(const at::Tensor&)> function) const {
  Companion mapped = *this;
  mapped.map_ = std::move(function);
  return mapped;
}

model::ModuleRef Companion::of(const model::ModuleRef& recorded,
                               const std::vector<model::ModuleRef>& modules) const {
  if (path_ == "." && modules_.empty()) return recorded;
  const std::string wanted = resolved(path_, recorded.path());
  std::vector<std::string> paths;
  for (const auto& module : modules_.empty() ? modules : modules_) {
    const auto& aliases = module.aliases();
    if (module.path() == wanted || std::find(aliases.begin(), aliases.end(), wanted) != aliases.end())
      return module;
    paths.push_back(module.path());
  }
  TORCH_CHECK_VALUE(false, "recorders::RecorderOptions::with: ", describe(), " of \"", recorded.path(),
                    "\" is \"", wanted, "\", and there is no such module; the nearest are ",
                    base::quoted(base::nearest(wanted, paths)), ".");
}

std::string Companion::describe() const {
  return c10::str(of_output_ ? "output" : "input", "(\"", path_, "\"",
                  slot_ == 0 ? "" : c10::str(", ", slot_), ")");
}

Companion output(std::string path, std::int64_t slot) {
  return {true, std::move(path), slot};
}

Companion input(std::string path, std::int64_t slot) {
  return {false, std::move(path), slot};
}

RecorderOptions& RecorderOptions::with(std::string name, Companion companion) {
  auto named = with();
  for (const auto& known : named) {
    TORCH_CHECK_VALUE(known.first != name, "recorders::RecorderOptions::with: \"", name,
                      "\" is named twice.");
  }
  named.emplace_back(std::move(name), std::move(companion));
  return takes(std::make_shared<statistics::detail::Paired>(std::move(named)));
}

const std::vector<std::pair<std::string, Companion>>& RecorderOptions::with() const& noexcept {
  static const auto& none = *new const statistics::detail::Companions;  // options may outlive static objects
  const auto* const paired = dynamic_cast<const statistics::detail::Paired*>(takes_.get());
  return paired == nullptr ? none : *paired->named;
}

std::vector<std::pair<std::string, Companion>> RecorderOptions::with() && {
  return static_cast<const RecorderOptions&>(*this).with();
}

Companion output(const selectors::ModuleView& model, std::string path, std::int64_t slot) {
  TORCH_CHECK_VALUE(!model.empty(), "recorders::output: expected the modules of a model, got none.");
  return {true, std::move(path), slot, model.vector()};
}

}  // namespace torchtap::recorders
