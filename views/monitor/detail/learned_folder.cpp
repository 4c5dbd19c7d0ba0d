#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>

#include <torchtap/base/error.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/views/monitor/detail/learned_folder.hpp>

namespace torchtap::views::monitor::detail {
namespace {

/// So that hours of learning are not lost at their end.
void check_learn(const std::string& folder) {
  namespace fs = std::filesystem;
  std::string plain = folder;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  const fs::path path = plain, parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(parent, error);
  TORCH_CHECK_VALUE(::access(parent.c_str(), W_OK | X_OK) == 0,
                    "views::monitor::MonitorOptions::learn: cannot write \"", folder,
                    "\": ", std::strerror(errno), ". Name a folder that can be made.");
  if (!fs::exists(path, error)) return;
  TORCH_CHECK_VALUE(fs::is_directory(path, error) &&
                        (fs::is_empty(path, error) || fs::exists(path / "manifest.json", error)),
                    "views::monitor::MonitorOptions::learn: \"", folder,
                    "\" holds something else than a recording; name a new folder.");
}

const std::string& checked(const std::string& folder) {
  check_learn(folder);
  return folder;
}

}  // namespace

LearnedFolder::LearnedFolder(const selectors::ModuleView& model, const MonitorOptions& options)
    : folder_(checked(options.learn())), learner_(std::make_unique<Learner>(model, options.select())) {}

LearnedFolder::~LearnedFolder() {
  // In a child, locks of TorchScript's compiler may be held.
  if (!made_here_) static_cast<void>(learner_.release());
  try {
    save();
  } catch (const std::exception&) {
    // `Monitor::flush` tells.
  }
}

void LearnedFolder::save() {
  if (!made_here_) return;
  storage::save(folder_, learner_->entries(), storage::SaveOptions().overwrite(true).mkdir(true));
}

}  // namespace torchtap::views::monitor::detail
