#pragma once

// The models that an explorer watches.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torchtap/base/process.hpp>
#include <torchtap/views/explorer/detail/http_server.hpp>
#include <torchtap/views/explorer/detail/watched_model.hpp>
#include <torchtap/views/explorer/serve.hpp>

namespace torchtap::views::explorer::detail {

/// A watched model for each model; each records into its own run. They share the time and the memory that the
/// options allow.
class WatchedModels final {
 public:
  explicit WatchedModels(ExplorerOptions options);
  ~WatchedModels();
  WatchedModels(const WatchedModels&) = delete;
  WatchedModels& operator=(const WatchedModels&) = delete;

  /// Watches one more model, whose `modules` begin with the root. Throws as `Explorer::attach` does.
  TORCHTAP_API std::shared_ptr<WatchedModel> watch(const std::vector<model::ModuleRef>& modules,
                                                   const selectors::Selector& selector,
                                                   const std::string& name, BeforeCall before_call = {});
  /// Throws as `Server` does, and `c10::ValueError` if it is served already.
  const std::string& serve(const ServeOptions& options);
  void export_page(const std::string& file) const;
  /// In a forked child: the runs belong to the parent, and the child records nothing into them.
  TORCHTAP_API void leave_to_parent() noexcept;

  void set_step(std::int64_t step);
  void scalar(const std::string& name, double value);
  /// Whether the current step of a model is recorded.
  bool recording() const;
  std::vector<std::string> errors() const;
  /// The model that was watched first; before there is one, the model that will be.
  std::shared_ptr<WatchedModel> first() const;
  TORCHTAP_API std::vector<std::shared_ptr<WatchedModel>> all_watched() const;
  const ExplorerOptions& options() const noexcept { return options_; }

 private:
  struct Member {
    std::shared_ptr<WatchedModel> watched;
    std::string label;  // the model's; empty before there is one
  };

  std::string label_of(const model::ModuleRef& root, const std::string& name) const;
  std::string full_name(const std::string& label) const;
  void check_new(const model::ModuleRef& root) const;
  Member& another(std::int64_t number, const std::string& label);
  void share();

  const base::MadeHere made_here_;  // a forked child records nothing
  const ExplorerOptions options_;
  const std::shared_ptr<std::atomic<int>> models_ = std::make_shared<std::atomic<int>>(1);
  mutable std::mutex mutex_;     // of the members below
  std::vector<Member> members_;  // without runs that ended, if `ExplorerOptions::write` has them
  std::int64_t runs_ = 1;
  std::set<std::string> labels_;  // of all runs
  std::string name_;
  std::optional<std::int64_t> user_step_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace torchtap::views::explorer::detail
