// Makes and ends a judge, and takes what it is told.
#include <algorithm>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/kind.hpp>
#include <torchtap/views/monitor/detail/folders.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/judge.hpp>

namespace torchtap::views::monitor::detail {
namespace {

std::string some_of(std::vector<std::string> paths) {
  const bool more = paths.size() > 3;
  paths.resize(std::min<std::size_t>(paths.size(), 3));
  return base::quoted(paths) + (more ? " …" : "");
}

}  // namespace

Judge::Judge(JudgedModel model, const std::string& reference, const MonitorOptions& options, Subject& subject)
    : model_(std::move(model)), options_(options), subject_(subject), reference_(reference) {
  if (!reference_.empty()) load_reference();
  if (!options_.incidents().empty()) {
    incidents_folder_ = private_folder(options_.incidents());
    cpu_capability();  // now: LibTorch's objects that know it have to outlive a monitor that is a static
                       // object
  }
  if (!options_.tensorboard().empty()) {
    events_ = std::make_unique<tensorboard::EventFile>(options_.tensorboard());
  }
}

Judge::~Judge() = default;

void Judge::load_reference() {
  learned_ = Reference::load(reference_);
  std::vector<std::string> missing;
  bool any = false;  // every model has a root, so a common root counts only if nothing else is watched
  for (const std::size_t i : model_.chosen) {
    const std::string& path = model_.modules[i].path;
    const bool known = learned_.find(path, name_of(recorders::RecorderKind::forward_output)) != nullptr;
    if (!known) missing.push_back(path);
    any = any || (known && (i != 0 || model_.chosen.size() == 1));
  }
  TORCH_CHECK_VALUE(any, "views::monitor::Monitor: no module that is watched is in the reference \"",
                    reference_, "\"; expected some of ", some_of(missing), ", but it has ",
                    some_of(learned_.paths()), ". Is it of another model?");
  without_reference_ = static_cast<std::int64_t>(missing.size());
}

void Judge::judge(Told told) {
  {
    const std::lock_guard lock(data_mutex_);
    not_counted_.insert(told.not_counted.begin(), told.not_counted.end());
    if (told.parameters.has_value()) parameters_ = *std::move(told.parameters);
    if (!told.digest.empty()) digest_ = std::move(told.digest);
  }
  for (const std::string& error : told.errors) count_error(error.c_str());
  for (Alarm& alarm : told.alarms) {
    const bool is_new = [&] {
      const std::lock_guard lock(data_mutex_);
      return book_.raise(alarm);
    }();
    if (is_new) tell({std::move(alarm)});
  }
  if (told.capture && !incidents_folder_.empty()) guarded([&] { capture("requested"); });
  for (const Window& window : told.windows) guarded([&] { end_window(window); });
}

/// Tensors that had values, and whose windows were too few for drift.
void Judge::end() {
  const auto count = std::count_if(tests_.begin(), tests_.end(), [](const auto& one) {
    return !one.second.judged && !one.second.held.empty();
  });
  if (count == 0) return;
  not_judged_ += count;
  note("drift of " + std::to_string(count) + (count == 1 ? " tensor" : " tensors") +
       " was not judged: there were too few rows or batches");
}

void Judge::on_alarm(std::function<void(const Alarm&)> callback) {
  const std::lock_guard lock(data_mutex_);
  std::swap(callback_, callback);  // the former one is destroyed outside of the lock
}

std::vector<Alarm> Judge::alarms() const {
  const std::lock_guard lock(data_mutex_);
  return book_.all();
}

/// The first is noted, all are in metrics.
void Judge::count_error(const char* what) noexcept {
  if (errors_.fetch_add(1, std::memory_order_relaxed) == 0) note(std::string("not all is watched: ") + what);
}

}  // namespace torchtap::views::monitor::detail
