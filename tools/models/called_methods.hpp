#pragma once

// Finds the methods by which a TorchScript model calls its modules.

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <torchtap/model/module_ref.hpp>

namespace torchtap::tools {

/// The methods by which a TorchScript model calls its modules.
struct Methods {
  /// All modules of the model in walk order, each with the method to record.
  std::vector<model::ModuleRef> modules;
  /// By path: the method recorded instead of the requested one, because the model never calls the latter.
  std::map<std::string, std::string> instead;
  /// By path: other methods by which the model calls the module; these are not recorded.
  std::map<std::string, std::set<std::string>> others;
};

/// Follows the calls in the model's code, starting at `called`, the model's own method. Records a module's
/// method `recorded` if the model calls it, or calls no method of the module; otherwise the method it calls,
/// preferably "forward".
Methods find_methods(const torch::jit::Module& model, const std::string& called, const std::string& recorded);

}  // namespace torchtap::tools
