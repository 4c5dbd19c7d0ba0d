#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/views/send/stream.hpp>
#include <torchtap/views/stream/publisher.hpp>

#include "config.hpp"
#include "process_report.hpp"
#include "program_area.hpp"

namespace torchtap::tools::preload {

struct Wanted;

/// Publishes what processes send to readers (`--stream`), each process under a name of its own, and tells
/// processes what readers want.
class ReceivedStreams {
 public:
  ReceivedStreams(ProgramArea& area, const Config& config) : area_(area), config_(config) {}

  /// Publishes what has come from a process, for a moment: slow readers may make it wait, while the launcher
  /// has signals to forward. Of one that is gone it is the end of its stream, once all is published.
  void receive(Report& report);
  /// The same of processes that are known and run. Says after how many milliseconds there may be more.
  std::int64_t receive_known();
  /// From now on all that has come is published, however long that takes: the program has ended.
  void publish_all() { publishes_all_ = true; }
  /// Ends all streams.
  void end(std::vector<Report>& reports);

 private:
  struct Source {
    std::shared_ptr<recorders::StreamSource> source;
    Wanted* wanted = nullptr;
  };
  struct Process {
    std::string name, failure;
    std::optional<views::stream::Publisher> publisher;
    std::shared_ptr<recorders::Stream> stream;
    std::vector<Source> sources;
    bool has_ended = false;
  };
  void receive(std::uint32_t number, bool gone);
  void publish(std::uint32_t number, Process& process);
  void tell(std::uint32_t number, Process& process);
  void end(std::uint32_t number, Process& process);

  ProgramArea& area_;
  const Config& config_;
  bool publishes_all_ = false;
  std::map<std::uint32_t, Process> processes_;
};

}  // namespace torchtap::tools::preload
