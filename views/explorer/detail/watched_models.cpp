// Several models of one explorer.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>

#include <torchtap/base/error.hpp>
#include <torchtap/views/explorer/detail/export.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>
#include <torchtap/views/explorer/detail/watched_models.hpp>

namespace torchtap::views::explorer::detail {

WatchedModels::WatchedModels(ExplorerOptions options) : options_(std::move(options)) {
  members_.push_back({std::make_shared<WatchedModel>(options_, WatchedModel::Place{1, models_}), ""});
  name_ = members_.front().watched->run()->info().name;
}

WatchedModels::~WatchedModels() {
  for (const Member& member : members_) member.watched->close();
}

/// The name or type of a model, with a number if another model has it, or had it.
std::string WatchedModels::label_of(const model::ModuleRef& root, const std::string& name) const {
  const std::string plain = name.empty() ? root.type() : name;
  std::string label = plain;
  for (int i = 2; labels_.count(label) != 0; ++i) label = plain + " " + std::to_string(i);
  return label;
}

std::string WatchedModels::full_name(const std::string& label) const {
  return name_ + ": " + label;
}

void WatchedModels::check_new(const model::ModuleRef& root) const {
  for (const Member& member : members_) {
    TORCH_CHECK_VALUE(!member.watched->watches(root),
                      "views::explorer::Explorer::attach: this explorer watches this ", root.type(),
                      " already, as \"", member.label, "\"; watch each model once.");
  }
}

/// Adds a model.
WatchedModels::Member& WatchedModels::another(std::int64_t number, const std::string& label) {
  ExplorerOptions options = options_;
  options.name(full_name(label));
  members_.push_back(
      {std::make_shared<WatchedModel>(std::move(options), WatchedModel::Place{number, models_}), ""});
  return members_.back();
}

std::shared_ptr<WatchedModel> WatchedModels::watch(const std::vector<model::ModuleRef>& modules,
                                                   const selectors::Selector& selector,
                                                   const std::string& name, BeforeCall before_call) {
  const std::lock_guard lock(mutex_);
  const model::ModuleRef& root = modules.front();
  for (const Member& member : members_) {
    if (member.watched->is_gone()) member.watched->let_go();  // a model of an earlier fold, say
  }
  check_new(root);
  const std::string label = label_of(root, name);
  const bool first = members_.front().label.empty();
  const std::int64_t number = runs_ + 1;
  Member& member = first ? members_.front() : another(number, label);
  try {
    member.watched->watch(modules, selector, std::move(before_call));
    if (!first && user_step_.has_value()) member.watched->set_step(*user_step_);
  } catch (...) {  // as if it had not been called
    if (!first) {
      members_.pop_back();
      std::error_code ignored;
      if (!options_.save().empty()) std::filesystem::remove(run_file_path(options_.save(), number), ignored);
    }
    throw;
  }
  member.label = label;
  labels_.insert(label);
  std::shared_ptr<WatchedModel> watched = member.watched;
  if (!first && ++runs_ == 2) members_[0].watched->run()->set_name(full_name(members_[0].label));
  if (options_.write()) {  // which has all of the runs that ended
    members_.erase(std::remove_if(members_.begin(), members_.end(),
                                  [](const Member& one) { return one.watched->closed(); }),
                   members_.end());
  }
  share();
  if (!first && server_ != nullptr) server_->add(watched->run());
  return watched;
}

void WatchedModels::share() {
  const auto models = static_cast<std::int64_t>(members_.size());
  *models_ = static_cast<int>(std::count_if(members_.begin(), members_.end(),
                                            [](const Member& member) { return !member.watched->closed(); }));
  for (const Member& member : members_) member.watched->run()->set_memory(options_.memory() / models);
}

const std::string& WatchedModels::serve(const ServeOptions& options) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_VALUE(server_ == nullptr,
                    "views::explorer::Explorer::serve: this explorer serves a page already, at ",
                    server_ == nullptr ? "" : server_->url(), ".");
  Runs runs;
  for (const Member& member : members_) runs.push_back(member.watched->run());
  server_ = std::make_unique<HttpServer>(std::move(runs), options);
  return server_->url();
}

void WatchedModels::export_page(const std::string& file) const {
  Runs runs;
  for (const auto& watched : all_watched()) runs.push_back(watched->run());
  detail::export_page(runs, file);
}

void WatchedModels::leave_to_parent() noexcept {
  for (const Member& member : members_) member.watched->leave_to_parent();
}

void WatchedModels::set_step(std::int64_t step) {
  if (!made_here_) return;
  std::vector<std::shared_ptr<WatchedModel>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const Member& member : members_) {
      member.watched->check_step(step);
      all.push_back(member.watched);
    }
    user_step_ = step;
  }
  for (const auto& watched : all) watched->set_step(step);  // which may call on_error, outside of the lock
}

void WatchedModels::scalar(const std::string& name, double value) {
  if (!made_here_) return;
  for (const auto& watched : all_watched()) watched->scalar(name, value);
}

bool WatchedModels::recording() const {
  const auto all = all_watched();
  return std::any_of(all.begin(), all.end(), [](const auto& watched) { return watched->recording(); });
}

std::vector<std::string> WatchedModels::errors() const {
  std::vector<std::string> errors;
  for (const auto& watched : all_watched()) {
    for (const std::string& error : watched->errors()) {
      if (std::find(errors.begin(), errors.end(), error) == errors.end()) errors.push_back(error);
    }
  }
  return errors;
}

std::shared_ptr<WatchedModel> WatchedModels::first() const {
  const std::lock_guard lock(mutex_);
  return members_.front().watched;
}

std::vector<std::shared_ptr<WatchedModel>> WatchedModels::all_watched() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<WatchedModel>> all;
  for (const Member& member : members_) all.push_back(member.watched);
  return all;
}

}  // namespace torchtap::views::explorer::detail
