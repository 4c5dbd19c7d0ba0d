#include "received_streams.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/views/stream/extend/relay.hpp>

#include "kept_samples.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

/// A sent tensor, in memory that stays until it is published.
views::stream::extend::Relayed relayed_of(const Kept& kept, char* data) {
  constexpr std::int32_t kNumbers = sizeof(Sent) / sizeof(std::int64_t);
  const auto* const numbers = reinterpret_cast<const std::int64_t*>(&kept + 1);
  const std::int32_t dimensions = kept.dimensions - kNumbers;
  Sent sent;
  std::memcpy(&sent, numbers + dimensions, sizeof sent);
  const auto bytes = kept.bytes - static_cast<std::uint64_t>(sent.bytes_of_text);
  const std::string_view text(data + bytes, static_cast<std::size_t>(sent.bytes_of_text));
  views::stream::extend::Relayed relayed;
  relayed.sample.sample = sent.sample;
  relayed.sample.call = sent.call;
  relayed.sample.slot = sent.slot;
  relayed.time_ns = static_cast<std::uint64_t>(sent.time_ns);
  relayed.thread = static_cast<std::uint32_t>(sent.thread);
  if (kept.dtype < 0) {
    relayed.why = std::string(text);
  } else {
    relayed.sample.result = text;
    relayed.tensor = at::from_blob(data, {numbers, static_cast<std::size_t>(dimensions)},
                                   at::TensorOptions(static_cast<at::ScalarType>(kept.dtype)));
  }
  return relayed;
}

}  // namespace

/// A process that sends nothing has no name.
void ReceivedStreams::publish(std::uint32_t number, Process& process) {
  if (process.publisher.has_value()) return;
  const auto options = views::stream::PublisherOptions().bytes(config_.stream_memory << 20);
  process.name = config_.stream;
  try {
    process.publisher.emplace(process.name, options);
  } catch (const c10::ValueError&) {  // another process of the program has it
    process.name += "-process" + std::to_string(number);
    process.publisher.emplace(process.name, options);
  }
  process.stream = *process.publisher;
}

void ReceivedStreams::receive(std::uint32_t number, bool gone) {
  Process& process = processes_[number];
  if (process.has_ended) return;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  bool all = true;
  try {
    all = area_.receive_kept(number, gone, [&](const Kept& kept, char* data) {
      if (kept.kind == Kept::source) {
        publish(number, process);
        storage::EntryId id;
        std::uint64_t wanted_at = 0;
        std::istringstream text(std::string(data, kept.bytes));
        core::InputArchive archive(text);
        archive(id.path, id.aliases, id.type, id.kind, wanted_at);
        if (kept.of >= process.sources.size()) process.sources.resize(kept.of + std::size_t{1});
        process.sources[kept.of] = {process.stream->source(id),
                                    reinterpret_cast<Wanted*>(area_.shared(wanted_at, sizeof(Wanted)))};
      } else if (kept.kind == Kept::sent) {
        views::stream::extend::relay(*process.sources.at(kept.of).source, relayed_of(kept, data));
      }
      return publishes_all_ || std::chrono::steady_clock::now() < until;
    });
    if (process.publisher.has_value()) tell(number, process);
  } catch (const std::exception& error) {
    process.failure =
        "the stream could not be published as \"" + process.name + "\": " + tools::message_of(error);
    if (!process.publisher.has_value()) process.name.clear();
    end(number, process);
  }
  if (gone && all) end(number, process);
}

/// The program leaves out what no reader wants; the publisher decides for each.
void ReceivedStreams::tell(std::uint32_t number, Process& process) {
  const std::vector<views::stream::ReaderInfo> readers = process.publisher->readers();
  std::int64_t every = 0;
  double hz = 0;
  bool is_limited = !readers.empty();
  for (const views::stream::ReaderInfo& reader : readers) {
    every = std::gcd(every, reader.subscription.every());
    hz = std::max(hz, reader.subscription.hz());
    is_limited = is_limited && reader.subscription.hz() > 0;
  }
  // Half as long: what comes a moment too early is not wanted, either.
  const auto interval = is_limited ? static_cast<std::uint64_t>(0.5e9 / hz) : 0;
  for (const Source& source : process.sources) {
    if (source.wanted == nullptr) continue;
    source.wanted->every = static_cast<std::uint64_t>(every);
    source.wanted->interval_ns = interval;
    source.wanted->anything.store(source.source->wanted() ? 1 : 0, std::memory_order_release);
  }
  area_.page(number).readers = static_cast<std::uint32_t>(readers.size());
}

void ReceivedStreams::end(std::uint32_t number, Process& process) {
  area_.page(number).readers = UINT32_MAX;
  for (const Source& source : process.sources)
    if (source.wanted != nullptr) source.wanted->anything = 0;
  process.stream.reset();
  process.publisher.reset();
  process.has_ended = true;
}

void ReceivedStreams::receive(Report& report) {
  receive(report.number, report.gone);
  const Process& process = processes_[report.number];
  report.stream = process.name;
  if (!process.name.empty() && process.name != config_.stream) {
    report.notes.push_back("another process publishes as \"" + config_.stream + "\"; this one does as \"" +
                           process.name + "\".");
  }
  if (process.failure.empty()) return;
  report.notes.push_back(process.failure);
  report.lost = true;
}

std::int64_t ReceivedStreams::receive_known() {
  constexpr std::int64_t kSoon = 1, kLater = 20;
  bool has_readers = false;
  for (auto& [number, process] : processes_) {
    if (process.has_ended || !process.publisher.has_value()) continue;
    receive(number, /*gone=*/false);
    has_readers = has_readers || area_.page(number).readers != 0;
  }
  return has_readers ? kSoon : kLater;
}

void ReceivedStreams::end(std::vector<Report>& reports) {
  for (Report& report : reports) {
    Process& process = processes_[report.number];
    if (process.publisher.has_value())
      report.notes.push_back("this process still runs; its stream has ended with torchtap.");
    end(report.number, process);
  }
}

}  // namespace torchtap::tools::preload
