#pragma once

#include <CLI/App.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/core/value.hpp>

/// The inputs that a model is called with, from files or from a random generator.
namespace torchtap::tools {

/// The positional inputs of one call of a model: tensors, or lists and dicts of tensors; None is an empty
/// value.
using Batch = core::Value::List;

struct InputOptions {
  std::vector<std::string> files;  ///< .pt, .npy, .safetensors and idx files, distinguished by their contents
  std::vector<std::string> random;  ///< "8x3x224x224[:dtype[:high]]", one per positional input
  bool batches = false;             ///< the lists in .pt files are lists of batches
  std::int64_t batch = 0;           ///< rows per call; 0: one call per file, or 64 rows for idx files
  std::int64_t count = 1;           ///< number of random batches
  std::uint64_t seed = 0;
};

/// Adds `--input`, `--idx3`, `--random`, `--batches`, `--batch`, `--seed` and, unless `one_call`, `--count`.
void add_input_options(CLI::App& command, InputOptions& options, bool one_call = false);
/// The section on input files for help texts.
const char* describe_inputs();

/// The batches in order, each read when it is requested.
///
/// - A `.pt` file holds a tensor, a dict, or a list (tuple) whose entries are the positional inputs of one
///   call. With `batches`, it holds a list of such batches.
/// - A `.npy` file holds one positional input, a `.safetensors` file a dict as one.
/// - An idx file (MNIST's; plain or gzipped) of bytes with three or more dimensions holds images: float32 in
///   [0, 1], and [N, 1, H, W] for three dimensions. Other idx files keep values and dtype.
/// - `batch` splits inputs along their first dimension; the last call gets the rest.
/// - Random inputs are normal for floats and whole numbers in [0, high) for integers (high is 2 by default).
/// They come from their own generator; floats equal Python's
/// `torch.randn(shape, generator=torch.Generator().manual_seed(seed))`.
class Inputs {
 public:
  /// Opens every file. Throws `c10::ValueError` if there are no inputs, for files combined with random
  /// inputs, for a file in none of the formats above, and for an invalid shape.
  explicit Inputs(InputOptions options);
  ~Inputs();
  Inputs(Inputs&&) noexcept;
  Inputs& operator=(Inputs&&) noexcept;

  /// Total number of batches.
  std::int64_t count() const noexcept { return count_; }
  /// The next batch; nothing after the last. Throws `c10::ValueError` that names the file if it is damaged.
  std::optional<Batch> next();

  /// A source of batches: one file, or the generator.
  class Source {
   public:
    virtual ~Source() = default;
    virtual std::int64_t count() const = 0;
    /// The next of `count()` batches.
    virtual Batch next() = 0;
    /// Frees the data; called after the last batch.
    virtual void close() {}
  };

 private:
  std::vector<std::unique_ptr<Source>> sources_;
  std::size_t current_ = 0;
  std::int64_t taken_ = 0;  // batches taken from the current source
  std::int64_t count_ = 0;
};

}  // namespace torchtap::tools
