#pragma once

// The content of a run: a run of this process while it is recorded, or a run read from files.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/explorer/detail/series.hpp>

namespace torchtap::views::explorer::detail {

class Control;
class RunFileWriter;

struct RunInfo {
  std::string name, program;
  std::string identity;           // unique, also when name, place and port are used again
  std::string state = "running";  // or "finished", "crashed"
  double started = 0;             // seconds since 1970
};

/// When the run started, and a random number: "18c2f1a04b7-9d2c…".
std::string new_identity(double started);

/// Series and scalars of a run. Any thread may call any function.
class Run {
 public:
  /// A mode's calls and edges as JSON, and a text that differs whenever they do.
  struct GraphText {
    std::string json, tag;
    std::int64_t version = 0;
  };
  using Scalars = std::map<std::string, std::vector<std::pair<std::int64_t, double>>>;

  Run(RunInfo info, std::size_t columns, std::int64_t memory);
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// An empty text for a mode in which the model did not run.
  virtual GraphText graph(Mode mode) = 0;
  virtual bool has(Mode mode) = 0;
  /// The sum of the graphs' versions.
  virtual std::int64_t graph_version() = 0;
  /// The identity of a call in other runs.
  struct CallName {
    std::string path, type;
    std::int64_t call = 0;
    std::int32_t parent = -1;
    std::vector<std::int64_t> dimensions;  // how many each of its parameters has
  };
  virtual std::map<std::int32_t, CallName> call_names() = 0;
  /// Controls how often it records; null if this process does not record it.
  virtual Control* control() { return nullptr; }
  /// Reads new blocks, if the run is read from files.
  virtual void refresh() {}
  /// Columns whose first step lies in the range, in the best resolution that there is.
  virtual std::vector<watch::Column> zoom(std::int32_t series, std::int64_t from, std::int64_t to);
  /// From now on everything is also written to a file.
  void write_to(std::shared_ptr<RunFileWriter> file);

  /// The number of the series, which is made if it is new.
  std::int32_t series(const SeriesKey& key, const std::string& name);
  /// Values at the step `column.first_step`.
  void add(std::int32_t series, const watch::Column& column);
  /// The optimizer's step that belongs to this one changed the parameter by this much, relative to its norm.
  void add_update(std::int32_t series, std::int64_t step, double ratio);
  void add_scalar(const std::string& name, std::int64_t step, double value);
  /// The run has come to this step.
  void reach(std::int64_t step);
  void set_state(const std::string& state);
  void set_name(const std::string& name);
  /// About how many bytes all columns may take from now on.
  void set_memory(std::int64_t bytes);

  RunInfo info() const;
  std::pair<std::int64_t, std::int64_t> steps() const;  // the first and the last
  /// Grows with each change.
  std::uint64_t sequence() const;
  /// Calls `function(series)` for each, in the order of their numbers, and while that does not change.
  template <class Function>
  void each_series(Function&& function) const {
    for (std::size_t i = 0;; ++i) {  // the training waits for one series at most
      const std::lock_guard lock(mutex_);
      if (i >= series_.size()) return;
      function(*series_[i]);
    }
  }
  /// -1 if there is none.
  std::int32_t find(const SeriesKey& key) const;
  /// Scalars of steps after `since`.
  Scalars scalars(std::int64_t since) const;
  /// The numbers of series that changed after `since`.
  std::vector<std::int32_t> changed(std::uint64_t since) const;

  /// Since when rules hold, by tensor and rule, as it was found at a step: `ills_of` looks at later steps
  /// only. Locked before everything else.
  struct Judged {
    std::mutex mutex;
    std::optional<std::int64_t> step;
    std::map<std::string, std::int64_t> since;
  };
  Judged judged;

 protected:
  /// Forgets series, scalars and steps. Findings that came back later are sent again by `renew`.
  void restart();
  void renew();

  mutable std::mutex mutex_;  // of everything below
  RunInfo info_;

 private:
  void limit_memory();

  std::vector<std::unique_ptr<Series>> series_;
  std::vector<std::uint64_t> changed_;
  std::map<SeriesKey, std::int32_t> index_;
  Scalars scalars_;
  std::uint64_t sequence_ = 0;
  std::int64_t first_step_ = 0, step_ = 0;
  bool reached_ = false;
  std::size_t columns_;
  std::int64_t memory_;
  std::size_t bytes_ = 0;
  std::shared_ptr<RunFileWriter> file_;
};

}  // namespace torchtap::views::explorer::detail
