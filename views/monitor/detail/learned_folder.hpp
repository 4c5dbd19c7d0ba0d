#pragma once

// A model whose reference is learned into a folder.

#include <memory>
#include <string>

#include <torchtap/base/process.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/views/monitor/learner.hpp>
#include <torchtap/views/monitor/options.hpp>

namespace torchtap::views::monitor::detail {

class LearnedFolder {
 public:
  /// Throws as `Learner`, and `c10::ValueError` if the folder cannot be made or holds something else.
  LearnedFolder(const selectors::ModuleView& model, const MonitorOptions& options);
  /// Saves, but not in a forked child. What fails is lost.
  ~LearnedFolder();
  LearnedFolder(const LearnedFolder&) = delete;
  LearnedFolder& operator=(const LearnedFolder&) = delete;

  void follow(const selectors::ModuleView& model) { learner_->follow(model); }
  /// Throws as `storage::save`.
  void save();

 private:
  const std::string folder_;
  const base::MadeHere made_here_;
  std::unique_ptr<Learner> learner_;
};

}  // namespace torchtap::views::monitor::detail
