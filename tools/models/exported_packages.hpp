#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include <torchtap/model/module_ref.hpp>

#include "inputs.hpp"

/// Packages of AOTInductor (.pt2) for the subcommands. If torchtap::exported is not built, every use is an
/// error that says so.
namespace torchtap::tools {

/// Whether the file is such a package, by its contents. False if it cannot be read.
bool is_package(const std::string& path);

/// A loaded package.
class Package {
 public:
  /// Throws `c10::ValueError` if the file cannot be loaded, or has no taps.
  explicit Package(const std::string& path);
  ~Package();
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  /// The whole model, then the modules that were tapped.
  std::vector<model::ModuleRef> modules() const;
  /// The whole model, and the modules of which inputs and outputs were tapped, so that calls begin and end.
  std::vector<model::ModuleRef> timed() const;
  /// Runs the model with the tensors of a batch, flattened in order, on `device`. Throws `c10::ValueError`
  /// for a batch that holds anything else.
  c10::IValue call(const Batch& batch, at::Device device) const;
  /// Prints the taps, as a table or as JSON.
  void list(bool json) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace torchtap::tools
