#pragma once

// The run of this process while it is recorded.

#include <chrono>
#include <memory>
#include <utility>

#include <torchtap/views/explorer/detail/control.hpp>
#include <torchtap/views/explorer/detail/run.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>

namespace torchtap::views::explorer::detail {

class LiveRun final : public Run {
 public:
  /// `every` as in `ExplorerOptions`; the others as in `Run`.
  LiveRun(RunInfo info, std::size_t columns, std::int64_t memory, std::int64_t every = 0)
      : Run(std::move(info), columns, memory), control_(every) {}

  GraphText graph(Mode mode) override;
  bool has(Mode mode) override;
  std::int64_t graph_version() override;
  std::map<std::int32_t, CallName> call_names() override;
  Control* control() override { return &control_; }

  /// From now on everything is also written to a file.
  void save_to(std::shared_ptr<RunFileWriter> file);
  /// Writes out what waits, with the graphs if they changed.
  void save();
  /// Saves, and marks the run as finished.
  void end();
  /// As `RunFileWriter::failure`.
  std::string failure() { return file_ == nullptr ? std::string() : file_->failure(); }

  /// Calls `function(graph)` while no other thread reads or changes it.
  template <class Function>
  decltype(auto) with_graph(Function&& function) {
    const std::lock_guard lock(graph_mutex_);
    return function(graph_);
  }

 private:
  void save_graphs(bool all);
  /// Differs whenever calls, edges, shapes or series do; empty for a mode that did not run.
  std::string structure_tag(Mode mode);

  Control control_;
  std::mutex graph_mutex_;
  Graph graph_;
  std::mutex saving_;
  std::shared_ptr<RunFileWriter> file_;
  struct Saved {
    std::string tag;            // of the graph in the file
    std::uint64_t recount = 0;  // at so many bytes it is written again, for its counts
  };
  Saved saved_[modes];
  std::chrono::steady_clock::time_point graphs_due_;
};

}  // namespace torchtap::views::explorer::detail
