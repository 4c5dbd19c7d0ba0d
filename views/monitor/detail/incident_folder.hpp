#pragma once

// Writes and reads the folder of an incident (views/monitor/FORMAT.md#incidents).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/core/value.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/views/monitor/alarm.hpp>
#include <torchtap/views/monitor/detail/flight_recorder.hpp>
#include <torchtap/views/monitor/detail/told.hpp>

namespace torchtap::views::monitor::detail {

struct IncidentContent {
  std::string reason;         // "nonfinite", "drift", "requested"
  std::string model;          // its name
  std::vector<Alarm> alarms;  // the alarms that led to it
  std::vector<KeptForward> forwards;
  std::vector<std::string> windows;  // texts about windows, oldest first
  bool inputs = true;                // whether inputs are written
  std::function<void(const std::string& folder)>
      write_statistics;                   // a recording, into this empty folder; may be null
  std::string reference;                  // its folder, or ""
  std::string rules;                      // Rules::text()
  std::string type;                       // of the root
  std::vector<model::ModuleRef> modules;  // parameters' digest, and parameters.pt in training; or none
  bool training = false;
  std::string digest;           // of the parameters, where there are no modules
  CopiedParameters parameters;  // empty: they are read while this is written
};

/// Copies of all parameters and buffers, by name.
core::Value::Dict copied_parameters(const std::vector<model::ModuleRef>& modules);

/// Writes `incidents/TIME-NUMBER-REASON`, beside and then renamed, with mode 0700; removes the oldest beyond
/// `keep`, except those younger than an hour. Returns the folder. Throws `c10::Error`, also where, beside its
/// tensors, less than a tenth of the disk and less than 1 GiB is free.
std::string write_incident(const std::string& incidents, std::int64_t keep, const IncidentContent& content);

/// The parts of an incident that a replay needs.
struct ReadIncident {
  std::string reason, model, type, created, torchtap, libtorch, cpu;
  std::string parameters;       // digest of the parameters, 16 hexadecimal digits; empty if it is not known
  std::string parameters_file;  // parameters and buffers by name; empty if there is none
  std::int64_t parameters_of = -1;  // the forward that had them; -1: they were read later
  bool inputs = false;
  std::vector<KeptForward> forwards;
};
/// Throws `c10::ValueError` if the folder holds no incident, was written by a newer torchtap, or is damaged.
/// Without `tensors`, inputs and random states stay on disk.
ReadIncident read_incident(const std::string& folder, bool tensors = true);

/// Whether a name is an incident's: TIME-NUMBER-REASON.
bool is_incident_name(const std::string& name);
/// The digest of all parameters, in the order of the modules.
std::string digest_of_parameters(const std::vector<model::ModuleRef>& modules);
/// The capability that this LibTorch uses on this machine: "AVX2".
const std::string& cpu_capability();

}  // namespace torchtap::views::monitor::detail
