// Checks options when they are set.
#include <typeinfo>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/extend/takes.hpp>
#include <torchtap/recorders/options.hpp>

namespace torchtap::recorders {

const at::Tensor& Sample::tensor(std::int64_t index) const {
  TORCH_CHECK_INDEX(index >= 0 && index < slots(), "recorders::Sample::tensor: tensor ", index,
                    " was asked for, but ", slots(), " would be recorded of this event of \"", path_, "\".");
  return all_ != nullptr ? (*all_)[index] : tensor_;
}

at::Tensor dequantized(const at::Tensor& tensor) {
  return tensor.is_quantized() ? tensor.dequantize() : tensor;
}

RecorderOptions& RecorderOptions::takes(std::shared_ptr<const extend::Takes> takes) {
  const extend::Takes *const before = takes_.get(), *const now = takes.get();
  TORCH_CHECK_NOT_IMPLEMENTED(before == nullptr || now == nullptr || typeid(*before) == typeid(*now),
                              "recorders::RecorderOptions: a recorder that ", before->what(), " never ",
                              now->what(), "; attach a second recorder.");
  takes_ = std::move(takes);
  return *this;
}

RecorderOptions& RecorderOptions::slot(std::int64_t slot) {
  TORCH_CHECK_VALUE(slot >= 0, "recorders::RecorderOptions::slot: expected a slot from 0 on, got ", slot,
                    "; all_tensors() records every one.");
  slot_ = slot;
  all_tensors_ = false;
  return *this;
}

RecorderOptions& RecorderOptions::spool(std::string directory, storage::SpoolOptions options) {
  TORCH_CHECK_VALUE(!directory.empty(),
                    "recorders::RecorderOptions::spool: the directory is empty; name one.");
  spool_directory_ = std::move(directory);
  spool_options_ = options;
  memory_budget_.reset();
  return *this;
}

RecorderOptions& RecorderOptions::defer(std::int64_t bytes) {
  TORCH_CHECK_VALUE(bytes >= 0, "recorders::RecorderOptions::defer: expected a number of bytes, got ", bytes,
                    ".");
  defer_ = bytes;
  return *this;
}

RecorderOptions& RecorderOptions::memory_budget(std::int64_t bytes, OverBudget policy) {
  TORCH_CHECK_VALUE(bytes >= 0, "recorders::RecorderOptions::memory_budget: expected a number of bytes, got ",
                    bytes, ".");
  memory_budget_ = bytes;
  over_budget_ = policy;
  spool_directory_.clear();
  return *this;
}

RecorderOptions& RecorderOptions::memory_budget(std::int64_t bytes, std::string directory,
                                                storage::SpoolOptions options) {
  memory_budget(bytes);
  TORCH_CHECK_VALUE(!directory.empty(),
                    "recorders::RecorderOptions::memory_budget: the directory is empty; name one.");
  spool_directory_ = std::move(directory);
  spool_options_ = options;
  return *this;
}

}  // namespace torchtap::recorders
