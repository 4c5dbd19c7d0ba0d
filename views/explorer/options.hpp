#pragma once

/// Options of an explorer: the data that it records, how often, and where to.

#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::views::explorer {

/// Kinds of tensors; combine them with `|`.
enum Record : unsigned {
  Input = 1,
  Output = 2,
  /// The gradient of the loss with respect to a module's inputs, all uses of the tensor included.
  GradInput = 4,
  /// The gradient with respect to its outputs, all uses of the tensor included.
  GradOutput = 8,
  /// Parameters at the end of backward, that is before the optimizer changes them.
  Parameter = 16,
  /// Their gradients, accumulated, at the same moment.
  ParameterGrad = 32,
  Everything = 63,
};

/// Chained like LibTorch's own options: `ExplorerOptions().every(100).save("run1")`.
class TORCHTAP_API ExplorerOptions {
 public:
  /// Called when recording fails.
  using OnError = std::function<void(const std::string& message)>;
  /// Gets bytes of a run, which has this number, from 1, among those of the explorer.
  using Write = std::function<void(std::int64_t run, const char* data, std::size_t bytes)>;

  /// Records the steps 0, n, 2n …; the alternative to `overhead`. Throws `c10::ValueError` unless n > 0.
  ExplorerOptions& every(std::int64_t steps);
  std::int64_t every() const noexcept { return every_; }
  /// Chooses the steps by itself, such that recording takes this share of the time on average. Throws
  /// `c10::ValueError` unless the share is more than 0 and at most 1.
  ExplorerOptions& overhead(double share);
  double overhead() const noexcept { return overhead_; }
  /// The most columns of a series; when they are full, neighbours are merged. Throws `c10::ValueError` for
  /// fewer than 2.
  ExplorerOptions& columns(std::int64_t count);
  std::int64_t columns() const noexcept { return columns_; }
  /// About how many bytes the file of `save` may take; 0, the default, for any number. When it is larger,
  /// neighbouring columns in it are merged until it is half as large, for which half as much again is needed
  /// for a moment. One column of each series is kept in any case. Throws `c10::ValueError` for less than 0.
  ExplorerOptions& disk(std::int64_t bytes);
  std::int64_t disk() const noexcept { return disk_; }

  /// The tensors whose values are recorded: `Input | Output`.
  TORCH_ARG(unsigned, record) = Everything;
  /// About how many bytes all columns in memory may take. Above, all series get fewer columns.
  TORCH_ARG(std::int64_t, memory) = std::int64_t{256} << 20;
  /// A directory that gets everything in full resolution; empty: nothing is written. It is made if it does
  /// not exist.
  TORCH_ARG(std::string, save);
  /// Gets what files of `save` would get, in their place and in order, as for another process that writes
  /// them. It is called in the threads that run the model; what it throws ends the writing, and is reported.
  TORCH_ARG(Write, write);
  /// The run's name on the page; if empty, the name of the directory or the program.
  TORCH_ARG(std::string, name);
  /// Called when recording fails, which the model never notices. `Explorer::errors` lists the failures, too.
  TORCH_ARG(OnError, on_error);

 private:
  std::int64_t every_ = 0;
  double overhead_ = 0.02;
  std::int64_t columns_ = 256;
  std::int64_t disk_ = 0;
};

}  // namespace torchtap::views::explorer
