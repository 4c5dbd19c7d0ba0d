#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torchtap/core/value.hpp>
#include <vector>

/// What a model is called with, from files or from a generator.
namespace torchtap::tools {

/// The positional inputs of one call of a model: tensors, or lists and dicts of such; nothing for None.
using Batch = core::Value::List;

struct InputOptions {
  std::vector<std::string> files;   ///< .pt, .npy and idx files, told apart by what is in them
  std::vector<std::string> random;  ///< "8x3x224x224[:dtype[:high]]", one a positional input
  bool batches = false;             ///< the lists in .pt files are lists of batches
  std::int64_t batch = 0;           ///< rows a call; 0: a file is one call, of idx files 64 rows are
  std::int64_t count = 1;           ///< how many random batches
  std::uint64_t seed = 0;
};

/// `--input`, `--idx3`, `--random`, `--batches`, `--batch`, `--seed` and, unless there is but `one_call`,
/// `--count`.
void add_input_options(CLI::App& command, InputOptions& options, bool one_call = false);
/// What a help text says about files of inputs.
const char* describe_inputs();

/// The batches one after the other, read when they are asked for.
///
/// - A `.pt` file holds a tensor or a dict, or a list (tuple), whose entries are the positional inputs of one
///   call. With `batches`, the file's list is one of batches, each of them as above.
/// - A `.npy` file holds one positional input.
/// - An idx file (MNIST's; plain or gzipped) of bytes with three or more dimensions is images: float32 in
///   [0, 1], with three dimensions [N, 1, H, W]. Others keep values and dtype.
/// - `batch` splits inputs along their first dimension; the last call gets what is left.
/// - Random inputs are normal for floats, whole numbers in [0, high) for integers (high is 2 unless given).
///   All come from a generator of their own: for floats those of Python's `torch.randn(shape,
///   generator=torch.Generator().manual_seed(seed))`.
class Inputs {
 public:
  /// Opens every file. Throws `c10::ValueError` if there are no inputs, files and random ones, a file that is
  /// none of the above, or a shape that cannot be read.
  explicit Inputs(InputOptions options);
  ~Inputs();
  Inputs(Inputs&&) noexcept;
  Inputs& operator=(Inputs&&) noexcept;

  /// How many batches there are in all.
  std::int64_t count() const noexcept { return count_; }
  /// The next batch; nothing after the last. Throws `c10::ValueError` naming the file for damaged ones.
  std::optional<Batch> next();

  /// Where batches come from: one file, or the generator.
  class Source {
   public:
    virtual ~Source() = default;
    virtual std::int64_t count() const = 0;
    /// The next of `count()` batches.
    virtual Batch next() = 0;
    /// Frees what was read; called after the last.
    virtual void close() {}
  };

 private:
  std::vector<std::unique_ptr<Source>> sources_;
  std::size_t current_ = 0;
  std::int64_t taken_ = 0;  // of the current one
  std::int64_t count_ = 0;
};

}  // namespace torchtap::tools
