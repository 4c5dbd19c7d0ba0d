#pragma once

/// Models that AOTInductor compiled into packages (.pt2), with hooks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/selectors/walk.hpp>

namespace torch::inductor {
class AOTIModelPackageLoader;
}

namespace torchtap::exported {

/// An input of a package, as it was exported.
struct InputInfo {
  std::string name;                ///< as it was exported
  std::string dtype;               ///< "float32"
  std::vector<std::string> shape;  ///< numbers, and the names of dynamic dimensions
};

/// The taps of a module.
struct TapInfo {
  std::string path;
  std::int64_t calls = 0;    ///< in one forward
  bool inputs = false;       ///< whether what it is given was tapped
  bool outputs = false;      ///< whether what it returns was tapped
  bool replaceable = false;  ///< whether hooks may replace these tensors
};

/// A package (.pt2) that `torchtap.export.compile` made in Python, loaded and ready to run. Recorders,
/// selectors and hooks work on it as on other models:
///
///     exported::Model model("m.pt2");
///     recorders::ForwardOutput maps(reductions::Moments{});
///     maps.modules(model, selectors::names("layer1.*"));
///     model.run({x});
///
/// It has the modules that were tapped when the model was exported, and the model itself at path "". Tensors
/// have the shapes and values of the eager model; AOTInductor chose their strides.
///
/// Any number of threads may call `run`, and attach and remove hooks meanwhile. Several models of one file
/// have separate hooks. Move-only.
class TORCHTAP_API Model {
 public:
  /// Loads `name` of the package. Throws `c10::ValueError` that names the file if it is missing, is not such
  /// a package, was compiled for another machine, or has a damaged list of taps. In a package without taps,
  /// only the model as a whole has hooks.
  explicit Model(const std::string& file, const std::string& name = "model");
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// Runs the model. `inputs` and the result are the flattened tensors of Python's arguments and results;
  /// `stream` is the CUDA stream, null for the current one.
  ///
  /// An exception of a hook reaches the caller after the compiled code has returned; no hook is called in
  /// between. Throws `c10::ValueError` if the number, dtypes, shapes or devices of the inputs differ from the
  /// export.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, void* stream = nullptr);

  /// The model at path "", then the tapped modules in the order of their first calls, each before its
  /// submodules.
  selectors::ModuleView modules() const;
  /// The tapped ones among the model's direct children, counted from 0.
  selectors::ModuleView children() const;

  /// Whether any module was tapped.
  bool tapped() const noexcept;
  /// The taps of each module, in the order of `modules`.
  std::vector<TapInfo> taps() const;
  /// The number of calls of the module at `path` in one forward. Throws `c10::IndexError` if it was not
  /// tapped.
  std::int64_t calls(const std::string& path) const;
  /// The inputs; empty for a package that `torchtap.export` did not compile.
  std::vector<InputInfo> inputs() const;
  /// The file of the package.
  const std::string& file() const& noexcept;
  /// For a temporary: returns by value.
  std::string file() && { return file(); }
  /// The package's own metadata.
  std::unordered_map<std::string, std::string> metadata() const;
  /// LibTorch's loader, for example to update constants. Hooks do not see its own runs.
  torch::inductor::AOTIModelPackageLoader& loader() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace torchtap::exported
