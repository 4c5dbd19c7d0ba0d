// Writes a ring and an incident of a monitor: write_monitor_formats FOLDER. Run it only for a new format, as
// write_formats.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <torchtap/base/remove_folder.hpp>
#include <torchtap/views/monitor/detail/flight_recorder.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>

namespace {

namespace parts = torchtap::views::monitor::detail;

/// Three forwards of x -> 2 x, the second of which returned NaN, and the last of which did not return.
void write(const std::string& folder) {
  const std::string incidents = std::filesystem::temp_directory_path() / "incidents";
  parts::FlightRecorder ring(incidents, 1 << 16, incidents, "written");
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(1);
  for (std::int64_t i = 0; i < 3; ++i) {
    at::Tensor x = at::arange(6, at::kFloat).view({2, 3}) + i;
    at::Tensor mask = at::arange(4).eq(i);
    if (i == 1) x[0][0] = NAN;
    x = x.t();
    torchtap::hooks::detail::CallTensors inputs;
    inputs.push_back(x);
    inputs.push_back(mask);
    inputs.push_absent();
    ring.begin(90000 + i, inputs, i == 2);
    parts::Outcome outcome = parts::outcome_of({x * 2});
    outcome.nanoseconds = 1500000;
    if (i != 2) ring.end(90000 + i, outcome);
    at::randn({3}, generator);
  }
  ring.note_window(R"({"window":0})");
  std::filesystem::copy_file(ring.file(), folder + "/ring");
  parts::IncidentContent content;
  content.reason = "nonfinite";
  content.model = "written";
  content.rules = "dead_relu = off\n";
  content.windows = {R"({"window":0})"};
  content.forwards = ring.forwards();
  const std::string incident = parts::write_incident(incidents, 16, content);
  std::filesystem::copy(incident, folder + "/incident", std::filesystem::copy_options::recursive);
  torchtap::base::remove_folder(incident);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_monitor_formats FOLDER\n");
    return 2;
  }
  try {
    write(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
