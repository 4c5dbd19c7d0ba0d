#pragma once

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <set>
#include <string>
#include <torchtap/model/module_ref.hpp>
#include <vector>

namespace torchtap::tools {

/// By which methods a TorchScript model calls its modules.
struct Methods {
  /// All of the model's modules, in the order of the walk; each stands for the method that is to be recorded.
  std::vector<model::ModuleRef> modules;
  /// By path: the method of a module that is recorded in place of the one that was asked for, because the
  /// model never calls that.
  std::map<std::string, std::string> instead;
  /// By path: further methods that the model calls the module by, which are not recorded.
  std::map<std::string, std::set<std::string>> others;
};

/// Follows the calls in the code of the model from `called`, the model's own method. A module is recorded by
/// `recorded` if the model calls that, or calls none; else by the one that it calls, "forward" before others.
Methods find_methods(const torch::jit::Module& model, const std::string& called, const std::string& recorded);

}  // namespace torchtap::tools
