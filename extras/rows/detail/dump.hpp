#pragma once

/// Defines `Dump`, what the modules of one recorder share: the numbers of forwards and groups, and the
/// columns beside the rows.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torchtap/rows/detail/asked.hpp>
#include <torchtap/rows/detail/group.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::rows::detail {

/// The dtype and shape that all rows of an entry have, fixed by the first ones.
struct Form {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<std::int64_t> sizes;

  bool known() const noexcept { return dtype != c10::ScalarType::Undefined; }
  /// That of rows which an earlier spool left; throws `c10::ValueError` naming `whose` if they differ.
  void take(const storage::Spool::Stream::Before& before, const std::string& whose);
};

/// A line of an index as a sample.
at::Tensor line_of(std::int64_t run, std::int64_t forward, std::int64_t group, std::int64_t call,
                   std::int64_t rows);

/// See above. Thread-safe. The spool lives longer.
class Dump {
 public:
  Dump(storage::Spool& spool, Asked asked);

  const Asked& asked() const noexcept { return asked_; }
  storage::Spool& spool() const noexcept { return spool_; }
  /// The number of this opening of the dump.
  std::int64_t run() const noexcept { return run_; }
  /// A number that no other dump of this process has.
  std::uint64_t serial() const noexcept { return serial_; }
  /// The number of a forward that begins.
  std::int64_t next_forward() noexcept { return forwards_.fetch_add(1); }

  /// Makes a group of a forward, and says in it why it does not fit.
  std::shared_ptr<Group> make(Named named, at::IntArrayRef sizes, std::int64_t forward);
  /// The group of a gradient: its forward is one in which the same tensors were named, and in which this call
  /// has given no gradient yet.
  std::shared_ptr<Group> of_gradient(const void* module, std::int64_t call, at::IntArrayRef sizes);

  /// The bytes that `write` will append.
  std::int64_t bytes_of(const Group& group) const;
  /// Appends what is beside the rows, unless that was done.
  void write(Group& group, storage::Spool::Stream& leader);
  /// Has the writer write what was appended.
  void hand_over();

 private:
  struct Column {
    std::string path, kind;
    std::int64_t name = -1;  // among those asked for; -1 for places
    Form form;
    storage::Spool::Stream* values = nullptr;
    storage::Spool::Stream* calls = nullptr;
  };
  struct OfGradients {
    Named named;
    std::int64_t forward;
    std::thread::id thread;  // in which its first gradient came
    std::set<std::pair<const void*, std::int64_t>> seen;
    std::vector<std::shared_ptr<Group>> groups;
  };
  const at::Tensor& values_of(const Column& column, const Group& group) const;
  std::string misfit(Column& column, const Group& group) const;
  void open(Column& column, storage::Spool::Stream& leader);

  storage::Spool& spool_;
  const Asked asked_;
  const std::int64_t run_;
  const std::uint64_t serial_;
  std::atomic<std::int64_t> forwards_{0};
  mutable std::mutex mutex_;
  std::int64_t groups_ = 0;
  std::vector<Column> columns_;
  bool collected_ = false;  // something that was not handed over
  std::deque<OfGradients> of_gradients_;
};

}  // namespace torchtap::rows::detail
