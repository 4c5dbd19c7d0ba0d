// Alarms of now, and what is told as bytes.
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <chrono>
#include <sstream>
#include <utility>

#include <torchtap/core/archive.hpp>
#include <torchtap/views/monitor/detail/told.hpp>

namespace torchtap::views::monitor::detail {

std::int64_t alarm_time_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Alarm alarm_of(rules::Finding finding, std::int64_t window, std::int64_t forward) {
  Alarm alarm;
  alarm.finding = std::move(finding);
  alarm.time_ns = alarm_time_ns();
  alarm.forward = forward;
  alarm.window = window;
  return alarm;
}

namespace {

/// Writes or reads: a name and a tensor, again and again.
template <class Archive, class Tensors, class Add>
void tensors(Archive& archive, const Tensors& all, const Add& add) {
  auto size = static_cast<std::uint64_t>(all.size());
  archive(size);
  if constexpr (Archive::is_saving::value) {
    for (const auto& [name, tensor] : all) archive(name, static_cast<const at::Tensor&>(tensor));
  } else {
    for (std::uint64_t i = 0; i < size; ++i) {
      std::string name;
      at::Tensor tensor;
      archive(name, tensor);
      add(name, std::move(tensor));
    }
  }
}

template <class Archive>
void each(Archive& archive, JudgedModule& module) {
  archive(module.path, module.aliases, module.type, module.leaf, module.has_series);
}

template <class Archive>
void each(Archive& archive, std::pair<std::size_t, rules::Tensor>& tensor) {
  archive(tensor.first, tensor.second);
}

template <class Archive>
void each(Archive& archive, Alarm& alarm) {
  rules::Finding& finding = alarm.finding;
  archive(finding.rule, finding.path, finding.type, finding.tensor, finding.slot, finding.value,
          finding.limit, finding.sentence, alarm.time_ns, alarm.forward, alarm.window, alarm.raised);
}

template <class Archive>
void each(Archive& archive, SeenTensor& seen) {
  archive(seen.tensor, seen.slot, seen.order, seen.samples);
  tensors(archive, seen.results,
          [&](const std::string& name, at::Tensor tensor) { seen.results.set(name, std::move(tensor)); });
}

template <class Archive>
void each(Archive& archive, Window& window);

template <class Archive, class T>
void list(Archive& archive, std::vector<T>& all) {
  auto size = static_cast<std::uint64_t>(all.size());
  archive(size);
  all.resize(size);
  for (T& one : all) each(archive, one);
}

// Parameters are watched in the process that judges alone.
template <class Archive>
void each(Archive& archive, Window& window) {
  archive(window.number, window.rows, window.forward, window.calls, window.nonfinite, window.failed);
  list(archive, window.seen);
}

template <class Archive>
void both(Archive& archive, JudgedModel& model) {
  archive(model.name, model.chosen, model.unreachable);
  list(archive, model.modules);
  list(archive, model.tensors);
}

template <class Archive>
void both(Archive& archive, Told& told) {
  Counts& counts = told.counts;
  archive(counts.forwards, counts.sampled, counts.failures, counts.own_ns, counts.nonfinite, counts.period,
          counts.ring_skipped, told.capture, told.ended, told.digest, told.not_counted, told.errors);
  list(archive, told.alarms);
  list(archive, told.windows);
  bool has_parameters = told.parameters.has_value();
  archive(has_parameters);
  if (!has_parameters) return;
  if (!told.parameters.has_value()) told.parameters.emplace();
  CopiedParameters& parameters = *told.parameters;
  archive(parameters.forward);
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& [name, value] : parameters.values) all.emplace_back(name, value.tensor());
  tensors(archive, all, [&](const std::string& name, at::Tensor tensor) {
    parameters.values.emplace_back(name, std::move(tensor));
  });
}

template <class T>
std::string bytes_of(const T& object) {
  std::ostringstream bytes;
  {
    core::OutputArchive archive(bytes);
    both(archive, const_cast<T&>(object));  // which it reads alone
  }
  return bytes.str();
}

template <class T>
T object_of(const std::string& bytes) {
  std::istringstream stream(bytes);
  core::InputArchive archive(stream);
  T object;
  both(archive, object);
  return object;
}

}  // namespace

std::string packed(const JudgedModel& model) {
  return bytes_of(model);
}

std::string packed(const Told& told) {
  return bytes_of(told);
}

JudgedModel unpacked_model(const std::string& bytes) {
  return object_of<JudgedModel>(bytes);
}

Told unpacked(const std::string& bytes) {
  return object_of<Told>(bytes);
}

}  // namespace torchtap::views::monitor::detail
