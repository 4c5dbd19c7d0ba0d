#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/stream.hpp>

#include "commands.hpp"
#include "files/json.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools::stream {
namespace {

using tools::Json;
using tools::Table;
using views::stream::ReaderInfo;
using views::stream::StreamInfo;

constexpr char kStreamsExamples[] = R"(
Lists the programs of this user that publish (torchtap::views::stream::Publisher, torchtap record --stream, torchtap
preload --stream), and who reads them. A reader that lags holds its program up, at most once for 100 ms by default; it
is then "demoted": it misses what it does not read in time, and knows how much.

Examples:
  torchtap streams
  torchtap streams --json | jq '.[].readers'

Exit status: 0; 1 if nobody publishes; 2 on errors.)";

std::string policy_of(const ReaderInfo& reader) {
  return reader.waits ? "wait" : reader.demoted ? "demoted" : "skip";
}

std::string wishes_of(const ReaderInfo& reader) {
  const auto& wants = reader.subscription;
  std::string text;
  for (const auto& name : wants.names()) text += (text.empty() ? "" : ",") + name;
  if (text.empty()) text = "*";
  if (wants.every() > 1) text += " every " + std::to_string(wants.every());
  if (wants.hz() > 0) text += " " + tools::to_text(wants.hz(), 3) + " Hz";
  return text;
}

void print_json(const std::vector<StreamInfo>& streams) {
  Json all = Json::array();
  for (const auto& stream : streams) {
    Json readers = Json::array();
    for (const auto& reader : stream.readers) {
      readers.push_back({{"pid", reader.pid},
                         {"label", reader.subscription.label()},
                         {"names", reader.subscription.names()},
                         {"every", reader.subscription.every()},
                         {"hz", reader.subscription.hz()},
                         {"policy", policy_of(reader)},
                         {"lag_bytes", reader.lag_bytes},
                         {"offered", reader.offered},
                         {"received", reader.received},
                         {"missed", reader.missed}});
    }
    all.push_back({{"name", stream.name},
                   {"pid", stream.pid},
                   {"socket", stream.socket},
                   {"memory", stream.memory},
                   {"frames", stream.counters.published},
                   {"bytes", stream.counters.bytes},
                   {"without_data", stream.counters.without_data},
                   {"waited_ns", stream.counters.waited_ns},
                   {"readers", readers}});
  }
  tools::print(all);
}

void print_text(const StreamInfo& stream) {
  std::cout << tools::printable(stream.name) << ": process " << stream.pid << ", "
            << tools::counted(stream.counters.published, "frame") << ", "
            << tools::bytes_text(stream.counters.bytes) << ", " << tools::bytes_text(stream.memory)
            << " of shared memory, waited "
            << tools::to_text(static_cast<double>(stream.counters.waited_ns) / 1e6, 3) << " ms for readers\n";
  if (stream.readers.empty()) return;
  Table table({{"reader"},
               {"pid", Table::Align::right},
               {"wants", Table::Align::left, 1, 8},
               {"policy"},
               {"lag", Table::Align::right},
               {"frames", Table::Align::right},
               {"missed", Table::Align::right}});
  for (const auto& reader : stream.readers) {
    table.add({reader.subscription.label(), std::to_string(reader.pid), wishes_of(reader), policy_of(reader),
               tools::bytes_text(reader.lag_bytes), tools::count_text(reader.received),
               tools::count_text(reader.missed)});
  }
  table.print(std::cout);
}

struct StreamsOptions {
  std::string directory;
  bool json = false;
};

void list(const StreamsOptions& options) {
  const auto streams = views::stream::streams(options.directory);
  if (options.json) {
    print_json(streams);
  } else {
    for (const auto& stream : streams) print_text(stream);
    if (streams.empty()) std::cerr << "torchtap: nobody publishes.\n";
  }
  if (streams.empty()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_streams(CLI::App& app) {
  auto options = std::make_shared<StreamsOptions>();
  CLI::App* command = app.add_subcommand("streams", "List programs that publish, and who reads them");
  command->footer(kStreamsExamples);
  command->add_option("--directory", options->directory,
                      "Where publishers are; by default in $XDG_RUNTIME_DIR/torchtap, /tmp/torchtap-UID and "
                      "$HOME/.torchtap");
  command->add_flag("--json", options->json, "Write JSON");
  command->callback([options] { list(*options); });
}

}  // namespace torchtap::tools::stream
