#pragma once

/// A model as it computes, and how its tensors are distributed over time.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/views/explorer/options.hpp>
#include <torchtap/views/explorer/serve.hpp>

namespace torchtap::views::explorer {

class Explorer;
namespace detail {
class WatchedModels;
TORCHTAP_API WatchedModels& models_of(const Explorer& explorer) noexcept;
}  // namespace detail

/// Watches models while they train or run:
///
///     explorer::Explorer explorer(explorer::ExplorerOptions().save("run1"));
///     explorer.attach(*model);
///     for (…) { …; explorer.scalar("loss", loss); }
///
/// Outputs, gradients and trained weights are the same bits as without. A step begins with the first forward
/// of the model after a backward, unless `step` says otherwise; forwards in evaluation mode belong to the
/// training step before them. Several threads may run the model. Modules that cannot be hooked in this
/// program are not shown, and data flows through the call around them.
///
/// Each watched model is a separate run with its own steps; one page shows all.
///
/// Move-only; destroy it in the thread that runs the models, and not while a forward runs.
class TORCHTAP_API Explorer {
 public:
  /// Opens the page, which shows nothing until a model is attached.
  explicit Explorer(ExplorerOptions options = {});
  ~Explorer();
  Explorer(Explorer&&) noexcept;
  Explorer& operator=(Explorer&&) noexcept;

  /// Watches the model and its selected modules. If there are several models, the page shows each as this
  /// name, or as its type if that is empty. Throws `c10::ValueError` if the model itself cannot be hooked, or
  /// if this explorer watches it already.
  void attach(const selectors::ModuleView& model, const selectors::Selector& selector = {},
              const std::string& name = "");

  /// Says which step of all models begins, for a time axis of one's own. Throws `c10::ValueError` if the
  /// number is not larger than the one before.
  void step(std::int64_t number);
  /// A number of the current step, drawn above all panels of each model.
  void scalar(const std::string& name, double value);
  /// Records a tensor of one element. A tensor on a device is read, which waits for the device, only in steps
  /// that are recorded. Throws `c10::ValueError` for several elements.
  void scalar(const std::string& name, const at::Tensor& value);

  /// Shows the runs in the browser, from its own thread, as long as this object lives. Returns the address to
  /// open: "http://127.0.0.1:8080/#token=…". Throws as `Server` does, and `c10::ValueError` if it is served
  /// already.
  std::string serve(const ServeOptions& options = {});
  /// Writes the page with all recorded data into one file, which needs neither a server nor a network. Throws
  /// `c10::Error` if the file cannot be written.
  void export_page(const std::string& file) const;

  /// The number of the current step of the model that was watched first.
  std::int64_t step() const;
  /// The error at which recording failed.
  std::vector<std::string> errors() const;

 private:
  friend detail::WatchedModels& detail::models_of(const Explorer& explorer) noexcept;
  std::unique_ptr<detail::WatchedModels> models_;
};

/// In a forward: makes a node of an intermediate tensor, with its values and gradients. Returns the tensor
/// itself, whether or not an explorer watches.
TORCHTAP_API const at::Tensor& attach(const at::Tensor& tensor, const char* name);
/// For a temporary: returns by value.
TORCHTAP_API at::Tensor attach(at::Tensor&& tensor, const char* name);

}  // namespace torchtap::views::explorer
