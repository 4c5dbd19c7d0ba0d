// Writes and reads incidents: a recording of inputs, and JSON about them.
#include <ATen/Functions.h>
#include <ATen/Version.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <sstream>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/remove_folder.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/base/write_file.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/recorders/kind.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/monitor/detail/alarm_lines.hpp>
#include <torchtap/views/monitor/detail/folders.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::monitor::detail {
namespace {

namespace fs = std::filesystem;

constexpr int kIncidentFormat = 1;
constexpr const char* kIncidentCall = "views::monitor::Monitor";
constexpr std::uint64_t kMostFreeSpace = std::uint64_t{1} << 30;
constexpr const char* kReplayCall = "views::monitor::replay";
constexpr std::int64_t kMostReference = std::int64_t{64} << 20;
constexpr auto kYoung = std::chrono::hours(1);
const char* const kStaged = ".incident-";

std::string hex(std::uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return digits;
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return text::utc_text(std::chrono::nanoseconds(now).count());
}

/// A reason as a part of a file's name.
std::string as_name(const std::string& reason) {
  std::string name = reason.substr(0, 40);
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '_') letter = '-';
  }
  return name.empty() ? "incident" : name;
}

void write_text(const std::string& path, const std::string& text) {
  base::write_file(kIncidentCall, path, [&](std::ostream& out) { out << text; });
}

/// Of the tensors that are written. Sparse ones, which are few, are not counted.
std::uint64_t bytes_of(const IncidentContent& content) {
  std::uint64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.layout() == at::kStrided) bytes += tensor.nbytes();
  };
  for (const KeptForward& forward : content.forwards)
    if (content.inputs) std::for_each(forward.inputs.begin(), forward.inputs.end(), add);
  if (!content.training) return bytes;
  const core::Value::Dict& copies = content.parameters.values;
  for (const auto& [name, copy] : copies) add(copy.tensor());
  for (const model::ModuleRef& module : content.modules)
    for (const model::Held& held : model::held_by(module))
      if (copies.empty()) add(held.tensor);
  return bytes;
}

/// A full disk stops the program that is watched: beside the incident a tenth of a small disk stays free, and
/// of a large one as much as 16 full rings take.
void check_space(const std::string& incidents, std::uint64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(incidents.c_str(), &disk) != 0) return;
  const std::uint64_t unit = disk.f_frsize, free = disk.f_bavail * unit;
  const std::uint64_t least = std::min(disk.f_blocks * unit / 10, kMostFreeSpace) + bytes;
  TORCH_CHECK(free >= least, kIncidentCall, ": writes no incident to \"", incidents, "\": of its disk ",
              free >> 20, " MiB are free, and ", least >> 20,
              " MiB have to be. Make room there, or give another folder.");
}

/// The random states, each once, and which of them each forward has.
at::Tensor random_states_of(const std::vector<KeptForward>& forwards, std::vector<std::int64_t>& which) {
  std::vector<at::Tensor> states;
  for (const KeptForward& forward : forwards) {
    const at::Tensor& state = forward.random_state;
    if (!state.defined() || (!states.empty() && state.numel() != states.front().numel())) {
      which.push_back(-1);
      continue;
    }
    if (states.empty() || !(states.back().is_same(state) || states.back().equal(state)))
      states.push_back(state);
    which.push_back(static_cast<std::int64_t>(states.size()) - 1);
  }
  return states.empty() ? at::Tensor() : at::stack(states);
}

std::string forward_line(const KeptForward& forward, std::int64_t random_state) {
  json::Json inputs = json::Json::array();
  for (std::size_t i = 0; i < forward.inputs.size(); ++i) {
    const at::Tensor& tensor = forward.inputs[i];
    json::Json& input = inputs.emplace_back(json::Json{{"kept", tensor.defined()}});
    if (tensor.defined()) {
      input["dtype"] = base::dtype_text(tensor.scalar_type());
      input["shape"] = tensor.sizes().vec();
      if (!forward.strides[i].empty()) input["strides"] = forward.strides[i];
    } else {
      input["why"] = forward.why_not[i];
    }
  }
  json::Json line{{"forward", forward.number},   {"time_ns", forward.time_ns},
                  {"thread", forward.thread},    {"training", forward.training},
                  {"grad", forward.grad},        {"inference", forward.inference},
                  {"threads", forward.threads},  {"random_state", random_state},
                  {"inputs", std::move(inputs)}, {"returned", forward.returned}};
  if (forward.returned) {
    line.update({{"digest", hex(forward.outcome.digest)},
                 {"nan", forward.outcome.nan},
                 {"inf", forward.outcome.inf},
                 {"nanoseconds", forward.outcome.nanoseconds},
                 {"sum", forward.outcome.sum},
                 {"magnitude", forward.outcome.magnitude}});
  }
  return json::text(line);
}

/// A recording of one entry: the inputs by slot, each a list with an item for each forward.
bool write_inputs(const std::string& folder, const IncidentContent& content, const std::string& type) {
  std::size_t slots = 0;
  bool any = false;
  for (const KeptForward& forward : content.forwards) {
    slots = std::max(slots, forward.inputs.size());
    for (const at::Tensor& input : forward.inputs) any = any || input.defined();
  }
  if (!any) return false;
  core::Value::Dict dict;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    std::vector<at::Tensor> samples;
    for (const KeptForward& forward : content.forwards)
      samples.push_back(slot < forward.inputs.size() ? forward.inputs[slot] : at::Tensor());
    dict.emplace_back(std::to_string(slot), samples);
  }
  storage::Entry entry;
  entry.type = type;
  entry.kind = name_of(recorders::RecorderKind::forward_pre);
  entry.samples = static_cast<std::int64_t>(content.forwards.size());
  entry.value = std::move(dict);
  storage::save(folder, {entry}, storage::SaveOptions().mkdir(true));
  return true;
}

core::Value::Dict parameters_by_name(const std::vector<model::ModuleRef>& modules, bool copies) {
  core::Value::Dict dict;
  for (const model::ModuleRef& module : modules) {
    for (const model::Held& held : model::held_by(module)) {
      const at::Tensor tensor = held.tensor.detach();
      dict.emplace_back(base::utf8_text(module.path().empty() ? held.name : module.path() + "." + held.name),
                        copies ? tensor.clone() : tensor);
    }
  }
  return dict;
}

/// Copies the reference unless it is large.
void copy_reference(const std::string& from, const std::string& to) {
  std::error_code error;
  std::int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(from, error))
    if (entry.is_regular_file(error)) bytes += static_cast<std::int64_t>(entry.file_size(error));
  if (error || bytes > kMostReference) return;
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::skip_symlinks, error);
  if (error) base::remove_folder(to);
}

void make_private(const std::string& folder) {
  fs::permissions(folder, fs::perms::owner_all);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    fs::permissions(entry.path(), entry.is_directory() ? fs::perms::owner_all
                                                       : fs::perms::owner_read | fs::perms::owner_write);
}

bool is_young(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return error || fs::file_time_type::clock::now() - time < kYoung;
}

/// Removes the oldest incidents, and the remains of killed processes.
void sweep_incidents(const std::string& incidents, std::int64_t keep) {
  std::vector<fs::path> all;
  std::error_code error;  // what cannot be listed stays: the new incident is in place, which is what counts
  for (fs::directory_iterator entry(incidents, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind(kStaged, 0) == 0 && !is_young(entry->path())) base::remove_folder(entry->path().string());
    if (is_incident_name(name)) all.push_back(entry->path());
  }
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i + static_cast<std::size_t>(std::max<std::int64_t>(keep, 1)) < all.size(); ++i)
    if (!is_young(all[i])) base::remove_folder(all[i].string());
}

std::int64_t next_number(const std::string& incidents) {
  std::int64_t last = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(incidents, error)) {
    const std::string name = entry.path().filename().string();
    if (is_incident_name(name)) last = std::max<std::int64_t>(last, std::atoi(name.c_str() + 16));
  }
  return last + 1;
}

void write_content(const std::string& folder, const IncidentContent& content) {
  const base::RecordingMode quiet;
  std::vector<std::int64_t> which;
  const at::Tensor states = random_states_of(content.forwards, which);
  if (states.defined()) storage::save_value(folder + "/random_states.pt", states);
  const bool inputs = content.inputs && write_inputs(folder + "/inputs", content, content.type);
  std::string lines;
  for (std::size_t i = 0; i < content.forwards.size(); ++i) {
    KeptForward forward = content.forwards[i];
    if (!content.inputs) {
      for (std::size_t slot = 0; slot < forward.inputs.size(); ++slot) {
        forward.inputs[slot] = at::Tensor();
        forward.why_not[slot] = "left out";
      }
    }
    lines += forward_line(forward, which[i]) + '\n';
  }
  write_text(folder + "/forwards.jsonl", lines);
  if (!content.windows.empty()) {
    std::string windows;
    for (const std::string& window : content.windows) windows += window + '\n';
    write_text(folder + "/windows.jsonl", windows);
  }
  if (!content.rules.empty()) write_text(folder + "/rules.txt", content.rules);
  if (content.write_statistics) {
    fs::create_directory(folder + "/statistics");
    content.write_statistics(folder + "/statistics");
  }
  if (!content.reference.empty()) copy_reference(content.reference, folder + "/reference");
  const core::Value::Dict& copies = content.parameters.values;
  if (content.training && !(content.modules.empty() && copies.empty()))
    storage::save_value(folder + "/parameters.pt",
                        copies.empty() ? parameters_by_name(content.modules, false) : copies);

  json::Json alarms = json::Json::array();
  for (const Alarm& alarm : content.alarms) alarms.push_back(json_of(alarm, content.model));
  write_text(folder + "/incident.json",
             json::text({{"format", kIncidentFormat},
                         {"reason", content.reason},
                         {"model", content.model},
                         {"type", content.type},
                         {"created", utc_now()},
                         {"torchtap", TORCHTAP_VERSION},
                         {"libtorch", TORCH_VERSION},
                         {"cpu", cpu_capability()},
                         {"training", content.training},
                         {"inputs", inputs},
                         {"forwards", content.forwards.size()},
                         {"parameters",
                          content.modules.empty() ? content.digest : digest_of_parameters(content.modules)},
                         {"parameters_of", content.parameters.forward},
                         {"reference", content.reference},
                         {"alarms", std::move(alarms)}}) +
                 '\n');
}

[[noreturn]] void bad_incident(const std::string& folder, const std::string& why) {
  TORCH_CHECK_VALUE(false, kReplayCall, ": \"", folder, "\" is no incident of a monitor: ", why, ".");
}

KeptForward forward_of(const json::Reader& line, std::int64_t& random_state) {
  const std::int64_t none = 0;
  KeptForward forward;
  forward.number = line.get("forward", none);
  forward.time_ns = static_cast<std::uint64_t>(line.get("time_ns", none));
  forward.thread = static_cast<std::uint32_t>(line.get("thread", none));
  forward.training = line.get("training", false);
  forward.grad = line.get("grad", false);
  forward.inference = line.get("inference", false);
  forward.threads = static_cast<int>(std::clamp<std::int64_t>(line.get("threads", none), 1, 4096));
  random_state = line.get("random_state", std::int64_t{-1});
  for (const json::Reader& input : line.list("inputs")) {
    forward.inputs.emplace_back();
    forward.why_not.push_back(input.get("kept", false) ? "" : input.get<std::string>("why", "not known"));
    forward.strides.push_back(input.get("strides", std::vector<std::int64_t>()));
  }
  forward.returned = line.get("returned", false);
  forward.outcome.digest = std::strtoull(line.get<std::string>("digest", "").c_str(), nullptr, 16);
  forward.outcome.nan = line.get("nan", none);
  forward.outcome.inf = line.get("inf", none);
  forward.outcome.nanoseconds = line.get("nanoseconds", none);
  forward.outcome.sum = line.get("sum", std::nan(""));
  forward.outcome.magnitude = line.get("magnitude", std::nan(""));
  return forward;
}

/// Puts inputs and random states where their forwards are.
void read_tensors(const std::string& folder, const std::vector<std::int64_t>& random_states,
                  ReadIncident& incident) {
  std::error_code error;
  if (fs::exists(folder + "/random_states.pt", error)) {
    const at::Tensor states = storage::load_value(folder + "/random_states.pt").tensor();
    if (states.dim() != 2 || states.scalar_type() != at::kByte)
      bad_incident(folder, "its random states are none");
    for (std::size_t i = 0; i < random_states.size(); ++i)
      if (random_states[i] >= 0 && random_states[i] < states.size(0))
        incident.forwards[i].random_state = states[random_states[i]].contiguous();
  }
  if (!incident.inputs) return;
  const storage::Recording recording = storage::load(folder + "/inputs");
  if (recording.size() != 1) bad_incident(folder, "its inputs are not one entry");
  const core::Value value = recording.at(0).value();
  for (const auto& [slot, samples] : value.dict()) {
    const std::size_t index = std::strtoull(slot.c_str(), nullptr, 10);
    const core::Value::List& list = samples.list();
    if (list.size() != incident.forwards.size())
      bad_incident(folder, c10::str("it has ", incident.forwards.size(), " forwards, and ", list.size(),
                                    " inputs in slot ", slot));
    for (std::size_t i = 0; i < list.size(); ++i) {
      auto& inputs = incident.forwards[i].inputs;
      if (index < inputs.size() && list[i].is_tensor()) inputs[index] = list[i].tensor();
    }
  }
}

}  // namespace

bool is_incident_name(const std::string& name) {
  // 20261123T160455-0007-drift
  const auto digits = [&](std::size_t from, std::size_t to) {
    return name.size() > to && std::all_of(name.begin() + static_cast<std::ptrdiff_t>(from),
                                           name.begin() + static_cast<std::ptrdiff_t>(to),
                                           [](unsigned char letter) { return std::isdigit(letter) != 0; });
  };
  return digits(0, 8) && name[8] == 'T' && digits(9, 15) && name[15] == '-' && digits(16, 20) &&
         name.find('-', 20) != std::string::npos;
}

core::Value::Dict copied_parameters(const std::vector<model::ModuleRef>& modules) {
  const base::RecordingMode quiet;
  return parameters_by_name(modules, true);
}

std::string digest_of_parameters(const std::vector<model::ModuleRef>& modules) {
  const base::RecordingMode quiet;
  std::vector<at::Tensor> parameters;
  for (const model::ModuleRef& module : modules) {
    for (const model::Held& held : model::held_by(module))
      if (!held.buffer) parameters.push_back(held.tensor.detach().cpu());
  }
  return hex(outcome_of(parameters).digest);
}

const std::string& cpu_capability() {
  static const auto* const known = new std::string([] {
    const std::string config = at::show_config();
    const std::string words = "CPU capability usage: ";
    const std::size_t at = config.find(words);
    if (at == std::string::npos) return std::string();
    const std::size_t begin = at + words.size();
    return config.substr(begin, config.find_first_of("\n ", begin) - begin);
  }());
  return *known;  // never destroyed: incidents are written while a program ends, too
}

std::string write_incident(const std::string& incidents, std::int64_t keep, const IncidentContent& content) {
  const std::string parent = private_folder(incidents);
  check_space(parent, bytes_of(content));
  std::string staged = parent + "/" + kStaged + "XXXXXX";
  if (::mkdtemp(staged.data()) == nullptr) base::io_error(kIncidentCall, "make a folder in", parent, errno);
  try {
    write_content(staged, content);
    make_private(staged);
    std::string time = utc_now().substr(0, 19);  // 20261123T160455
    time.erase(std::remove_if(time.begin(), time.end(), [](char one) { return one == '-' || one == ':'; }),
               time.end());
    for (std::int64_t number = next_number(parent);; ++number) {
      char digits[24];
      std::snprintf(digits, sizeof digits, "%04lld", static_cast<long long>(number));
      std::string path = c10::str(parent, "/", time, "-", digits, "-", as_name(content.reason));
      if (::rename(staged.c_str(), path.c_str()) == 0) {
        const base::Descriptor opened(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        ::fsync(opened.get());  // else a power failure may take the name away again
        sweep_incidents(parent, keep);
        return path;
      }
      if (errno != EEXIST && errno != ENOTEMPTY) base::io_error(kIncidentCall, "make", path, errno);
    }
  } catch (...) {
    base::remove_folder(staged);
    throw;
  }
}

ReadIncident read_incident(const std::string& folder, bool tensors) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) bad_incident(folder, "it is no folder");
  if (!fs::exists(folder + "/incident.json", error)) bad_incident(folder, "it has no incident.json");
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  const std::string text = base::InputFile::open(kReplayCall, folder + "/incident.json").read_all(kMost);
  const json::Json document = json::parse_object(text);
  if (!document.is_object()) bad_incident(folder, "incident.json is no JSON object");
  const json::Reader about(document);
  const std::string newer = base::unreadable_format(about.get("format", std::int64_t{0}), kIncidentFormat);
  TORCH_CHECK_VALUE(newer.empty(), kReplayCall, ": cannot read \"", folder, "\": ", newer, ".");
  ReadIncident incident;
  for (const auto& [name, field] : {std::pair("reason", &incident.reason),
                                    {"model", &incident.model},
                                    {"type", &incident.type},
                                    {"created", &incident.created},
                                    {"torchtap", &incident.torchtap},
                                    {"libtorch", &incident.libtorch},
                                    {"cpu", &incident.cpu},
                                    {"parameters", &incident.parameters}})
    *field = about.get<std::string>(name, "");
  incident.parameters_of = about.get("parameters_of", std::int64_t{-1});
  incident.inputs = about.get("inputs", false);
  if (fs::exists(folder + "/parameters.pt", error)) incident.parameters_file = folder + "/parameters.pt";
  std::vector<std::int64_t> random_states;
  std::istringstream lines(base::InputFile::open(kReplayCall, folder + "/forwards.jsonl").read_all(kMost));
  for (std::string line; std::getline(lines, line);) {
    const json::Json each = json::parse_object(line);
    if (!each.is_object()) bad_incident(folder, "a line of forwards.jsonl is no JSON object");
    incident.forwards.push_back(forward_of(json::Reader(each), random_states.emplace_back()));
  }
  if (tensors) read_tensors(folder, random_states, incident);
  return incident;
}

}  // namespace torchtap::views::monitor::detail
