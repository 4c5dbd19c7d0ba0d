#include "received_monitors.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>

#include <torchtap/base/thread.hpp>
#include <torchtap/rules/rules.hpp>
#include <torchtap/views/monitor/reference.hpp>

#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;
namespace extend = views::monitor::extend;

std::uint64_t ring_bytes() {
  return extend::FlightRecorder::room_for(views::monitor::MonitorOptions().ring());
}

}  // namespace

/// A model of a process, and its judge.
struct ReceivedMonitors::Judged final : extend::Subject {
  std::string name, reference;
  std::unique_ptr<extend::Judge> judge;  // null if it could not be made
  std::size_t number = 0;                // among the models of the process
  const char* ring = nullptr;
  std::uint64_t ring_at = 0;
  std::int64_t windows = 0;  // that came
  bool ended = false;
  std::atomic<bool> judged{false};  // all of it
  mutable std::mutex mutex;
  extend::Counts latest;

  void set(const extend::Counts& now) {
    const std::lock_guard lock(mutex);
    latest = now;
  }
  extend::Counts counts() const override {
    const std::lock_guard lock(mutex);
    return latest;
  }
  std::vector<extend::KeptForward> forwards() const override {
    return ring == nullptr ? std::vector<extend::KeptForward>() : extend::forwards_in(ring);
  }
  void note_window(const std::string& /*text*/) override {}
  std::vector<model::ModuleRef> living(std::vector<std::shared_ptr<const void>>& /*keep*/) const override {
    return {};
  }
};

ReceivedMonitors::ReceivedMonitors(ProgramArea& area, const Config& config) : area_(area), config_(config) {
  if (config_.mode != "monitor") return;
  thread_ = base::start_thread("torchtap-judge", [this] {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stops_ || !work_.empty(); });
      if (work_.empty()) return;
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      run(next);
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  });
}

ReceivedMonitors::~ReceivedMonitors() {
  stop_thread();
}

void ReceivedMonitors::stop_thread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReceivedMonitors::run(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    failures_.insert("not all was judged: " + tools::message_of(error));
  }
}

/// In the thread, one after another; at once where there is none any more.
void ReceivedMonitors::ask(std::function<void()> work) {
  if (!thread_.joinable()) return run(work);
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void ReceivedMonitors::wait() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !busy_; });
}

void ReceivedMonitors::receive(const Report& report, const std::function<std::string()>& place) {
  Process& process = processes_[report.number];
  if (process.is_damaged) return;
  try {
    receive(process, report, place);
  } catch (const std::exception& error) {  // what the program told, or wrote over
    process.is_damaged = true;
    process.notes.push_back("what the program told after that was not judged: " + tools::message_of(error));
  }
}

void ReceivedMonitors::receive(Process& process, const Report& report,
                               const std::function<std::string()>& place) {
  for (const std::shared_ptr<Judged>& model : process.models) {
    if (model == nullptr || model->ring == nullptr || !model->judged) continue;
    model->ring = nullptr;
    area_.give_back(model->ring_at, ring_bytes());
  }
  area_.receive(report.number, report.gone, [&](std::uint32_t index, bool is_name, std::string_view bytes) {
    if (is_name) {
      if (process.place.empty()) process.place = place();
      process.models.resize(std::max<std::size_t>(process.models.size(), index + std::size_t{1}));
      process.models[index] = made(process, report, bytes);
      return;
    }
    const std::shared_ptr<Judged> model = process.models.at(index);
    if (model == nullptr) return;
    auto told = std::make_shared<extend::Told>(extend::unpacked(std::string(bytes)));
    model->windows += static_cast<std::int64_t>(told->windows.size());
    model->ended = told->ended;
    model->set(told->counts);
    const bool is_last = told->ended;
    ask([model, told, is_last] {
      model->judge->judge(std::move(*told));
      if (!is_last) return;
      model->judge->end();
      model->judged = true;
    });
  });
}

/// A model that is watched from now on; `text` is the place of its ring, its number, and the model. Null, and
/// noted, if it cannot be judged.
std::shared_ptr<ReceivedMonitors::Judged> ReceivedMonitors::made(Process& process, const Report& report,
                                                                 std::string_view text) {
  auto model = std::make_shared<Judged>();
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, model->ring_at);
  const auto [last, other] = std::from_chars(behind + 1, end, model->number);
  if (error != std::errc() || other != std::errc() || last == end)
    throw std::runtime_error("the program's memory is damaged.");
  extend::JudgedModel about =
      extend::unpacked_model(std::string(last + 1, static_cast<std::size_t>(end - last - 1)));
  model->name = about.name;
  model->reference = reference_for(process, about, process.notes);
  if (model->ring_at != 0) {
    model->ring = area_.shared(model->ring_at, ring_bytes());
  }
  views::monitor::MonitorOptions options;
  options.incidents(process.place)
      .rules(rules::Rules::parse(config_.rules))
      .metrics_file(beside(process, report, config_.metrics, model->number))
      .tensorboard(beside(process, report, config_.tensorboard, model->number));
  try {
    model->judge = std::make_unique<extend::Judge>(std::move(about), model->reference, options, *model);
  } catch (const std::exception& failed) {
    process.notes.push_back("the model " + model->name + " is not watched: " + tools::message_of(failed));
    return nullptr;
  }
  ask([model] { model->judge->prepare(); });
  return model;
}

/// The reference that was learned of this model: of those whose modules have the paths and types of most of
/// its own, the first that no other model is compared with, or else the first.
std::string ReceivedMonitors::reference_for(const Process& process, const extend::JudgedModel& model,
                                            std::vector<std::string>& notes) {
  if (config_.reference.empty()) return {};
  if (!learned_.has_value()) {
    learned_.emplace();
    std::string place = config_.reference;
    for (int number = 2; fs::exists(place); ++number) {
      Learned& learned = learned_->emplace_back();
      learned.place = place;
      const auto reference = views::monitor::Reference::load(place);
      for (const auto& tensor : reference.tensors()) learned.modules.emplace(tensor.path, tensor.type);
      place = config_.reference + "-" + std::to_string(number);
    }
  }
  const Learned* best = nullptr;
  std::pair<std::int64_t, bool> most{1, false};  // modules; whether it is free
  for (const Learned& learned : *learned_) {
    const auto same = std::count_if(model.modules.begin(), model.modules.end(), [&](const auto& module) {
      return learned.modules.count({module.path, module.type}) != 0;
    });
    const bool is_free =
        std::none_of(process.models.begin(), process.models.end(), [&](const std::shared_ptr<Judged>& other) {
          return other != nullptr && !other->ended && other->reference == learned.place;
        });
    const std::pair<std::int64_t, bool> fits{same, is_free};
    if (fits < most || (best != nullptr && fits == most)) continue;
    best = &learned;
    most = fits;
  }
  if (best != nullptr) return best->place;
  notes.push_back("the model " + model.name + " is watched with rules alone: no reference beside " +
                  config_.reference +
                  " was learned of it; torchtap preload --learn learns those of all models.");
  return {};
}

/// A path of this process, for its models from the second on with a number: "torchtap-2.prom".
std::string ReceivedMonitors::beside(const Process& process, const Report& report, const std::string& path,
                                     std::size_t number) const {
  if (path.empty()) return path;
  const fs::path place = path;
  std::string end;
  if (process.place != config_.save) end += "-process" + std::to_string(report.number);
  if (number != 0) end += "-" + std::to_string(number + 1);
  const bool is_file = path == config_.metrics;
  return (place.parent_path() / (is_file ? place.stem().string() + end + place.extension().string()
                                         : place.filename().string() + end))
      .string();
}

void ReceivedMonitors::end(Report& report, views::monitor::Left left) {
  wait();
  Process& process = processes_[report.number];
  report.directory = process.place;
  report.notes.insert(report.notes.end(), process.notes.begin(), process.notes.end());
  report.notes.insert(report.notes.end(), failures_.begin(), failures_.end());
  if (!report.gone || std::exchange(process.ended, true)) return;
  const std::vector<std::string> published = area_.parts_of(report.number);
  for (const std::shared_ptr<Judged>& model : process.models) {
    if (model == nullptr) continue;
    ask([&] {
      if (!model->ended && model->number < published.size() && !published[model->number].empty()) {
        extend::Told told = extend::unpacked(published[model->number]);
        // Or it has ended, and was told, since it was published.
        if (!told.windows.empty() && told.windows.front().number == model->windows) {
          model->set(told.counts);
          model->judge->judge(std::move(told));
        }
      }
      if (!model->ended) model->judge->end();
      using views::monitor::Left;
      if (left != Left::none) {
        const std::string incident = model->judge->crashed(left == Left::suspicious);
        if (!incident.empty()) report.incidents.push_back(incident);
      }
    });
  }
  wait();
  std::int64_t judged = 0;
  for (const std::shared_ptr<Judged>& model : process.models) {
    if (model == nullptr) continue;  // a note says so
    report.alarms += model->judge->raised();
    judged += model->counts().forwards;
  }
  const auto all = static_cast<std::int64_t>(area_.page(report.number).begun);
  const bool is_each =
      std::find(process.models.begin(), process.models.end(), nullptr) == process.models.end();
  report.missing = is_each ? all - judged : 0;
}

}  // namespace torchtap::tools::preload
