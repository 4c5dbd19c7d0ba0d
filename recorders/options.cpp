// Checks options when they are set.
#include <torchtap/base/error.hpp>
#include <torchtap/recorders/options.hpp>

namespace torchtap::recorders {

const at::Tensor& Sample::tensor(std::int64_t index) const {
  TORCH_CHECK_INDEX(index >= 0 && index < tensors(), "recorders::Sample::tensor: tensor ", index,
                    " was asked for, but ", tensors(), " would be recorded of this event of \"", path_,
                    "\".");
  return all_ != nullptr ? (*all_)[index] : tensor_;
}

at::Tensor dequantized(const at::Tensor& tensor) {
  return tensor.is_quantized() ? tensor.dequantize() : tensor;
}

Options& Options::with(std::string name, Companion companion) {
  for (const auto& known : with_) {
    TORCH_CHECK_VALUE(known.first != name, "recorders::Options::with: \"", name, "\" is named twice.");
  }
  with_.emplace_back(std::move(name), std::move(companion));
  return *this;
}

Options& Options::tensor(std::int64_t slot) {
  TORCH_CHECK_VALUE(slot >= 0, "recorders::Options::tensor: expected a slot from 0 on, got ", slot,
                    "; all_tensors() records every one.");
  tensor_ = slot;
  all_tensors_ = false;
  return *this;
}

Options& Options::spool(std::string directory, storage::SpoolOptions options) {
  TORCH_CHECK_VALUE(!directory.empty(), "recorders::Options::spool: the directory is empty; name one.");
  spool_directory_ = std::move(directory);
  spool_options_ = options;
  memory_budget_.reset();
  return *this;
}

Options& Options::memory_budget(std::int64_t bytes, OverBudget policy) {
  TORCH_CHECK_VALUE(bytes >= 0, "recorders::Options::memory_budget: expected a number of bytes, got ", bytes,
                    ".");
  memory_budget_ = bytes;
  over_budget_ = policy;
  spool_directory_.clear();
  return *this;
}

Options& Options::memory_budget(std::int64_t bytes, std::string directory, storage::SpoolOptions options) {
  memory_budget(bytes);
  TORCH_CHECK_VALUE(!directory.empty(),
                    "recorders::Options::memory_budget: the directory is empty; name one.");
  spool_directory_ = std::move(directory);
  spool_options_ = options;
  return *this;
}

Options& Options::stream(std::shared_ptr<Stream> stream, std::int64_t every) {
  TORCH_CHECK_VALUE(stream != nullptr,
                    "recorders::Options::stream: there is no stream; make a publisher first.");
  TORCH_CHECK_VALUE(every >= 1, "recorders::Options::stream: every ", every,
                    " is not a number of samples; 1 sends each.");
  stream_ = std::move(stream);
  stream_every_ = every;
  return *this;
}

}  // namespace torchtap::recorders
