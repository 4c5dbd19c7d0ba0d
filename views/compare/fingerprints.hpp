#pragma once

/// Writes fingerprints of all tensors that pass through a model, to compare two programs by.

#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/views/send/stream.hpp>

namespace torchtap::views::compare {

/// A call, by its number among the recorded calls of its module and thread.
struct TORCHTAP_API CallId {
  std::string path;
  std::int64_t sample = 0;
  friend bool operator==(const CallId& a, const CallId& b) {
    return a.path == b.path && a.sample == b.sample;
  }
};

/// Chained like LibTorch's own options: `FingerprintsOptions().forwards(3)`.
struct TORCHTAP_API FingerprintsOptions {
  /// How many forwards of each thread are written; 0 for all.
  TORCH_ARG(std::int64_t, forwards) = 1;
  /// How many forwards are left out before, say for warming up.
  TORCH_ARG(std::int64_t, skip) = 0;
  /// The rank of this process in a distributed program.
  TORCH_ARG(std::int64_t, rank) = 0;
  /// Calls whose inputs and outputs are written as they are, with fingerprints of the operations inside, and
  /// nothing else: `torchtap compare --run` asks for them.
  TORCH_ARG(std::vector<CallId>, values);
};

/// Writes a fingerprint of each parameter and buffer, and of each input and output of each call, to a file
/// that `torchtap compare` reads:
///
///     views::compare::Fingerprints prints("port.prints");
///     prints.attach(*model);
///     model->forward(images);
///
/// A fingerprint takes 800 bytes, whatever the size of the tensor; views/compare/FORMAT.md specifies it.
/// Outputs and gradients keep their bits. Any number of threads may run the model. Tensors of devices are
/// copied to the CPU, which waits for the device.
class TORCHTAP_API Fingerprints {
 public:
  /// `file`: a file, a pipe, or "-" for the standard output. A file of fingerprints is overwritten. Throws
  /// `c10::ValueError` if the file holds something else or the options are negative, and `c10::Error` if it
  /// cannot be written.
  explicit Fingerprints(const std::string& file, FingerprintsOptions options = {});
  /// Hands the bytes to `write`, frame by frame and in their order, instead of to a file. It is called in the
  /// threads that run the model; what it throws ends the writing, and `close` throws.
  explicit Fingerprints(std::function<void(const char* data, std::size_t bytes)> write,
                        FingerprintsOptions options = {});
  Fingerprints(Fingerprints&&) noexcept;
  Fingerprints& operator=(Fingerprints&&) noexcept;
  /// Detaches, and writes what is left.
  ~Fingerprints();

  /// Attaches to all modules that have a forward and can be reached. The weights are written when the first
  /// of them is called. Throws `c10::ValueError`, which names the remedies, if no module can be reached.
  /// In modules of a walk the first is the root. Modules of an exported model have no weights.
  Fingerprints& attach(const selectors::ModuleView& model);

  /// For `recorders::RecorderOptions::stream` with `all_tensors`, of a recorder of inputs or outputs.
  std::shared_ptr<recorders::Stream> stream() const;
  /// Writes the parameters and buffers of these modules now.
  void write_weights(const std::vector<model::ModuleRef>& modules);
  /// How many tensors were written so far.
  std::int64_t written() const;

  /// Detaches from all models, and writes what is left. Throws `c10::Error` if not all could be written.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torchtap::views::compare
