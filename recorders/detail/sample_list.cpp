// Packs small samples into buffers.
#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/recorders/detail/sample_list.hpp>

namespace torchtap::recorders::detail {
namespace {

constexpr std::int64_t kPackedBytes = 64 << 10;  // larger samples get an allocation of their own
constexpr std::int64_t kBufferBytes = 1 << 20;
constexpr std::int64_t kGrowth = 48;  // a new buffer has room for 1/48 of the samples, which may stay unused
constexpr std::size_t kManyRuns = 24;

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_conj() && !tensor.is_neg();
}

bool fits(const at::Tensor& buffer, const at::Tensor& sample) {
  return buffer.scalar_type() == sample.scalar_type() && buffer.device() == sample.device() &&
         buffer.sizes().slice(1) == sample.sizes();
}

void copy_row(const at::Tensor& buffer, std::int64_t row, const at::Tensor& sample) {
  if (sample.device().is_cpu() && sample.is_contiguous()) {
    auto* to = static_cast<char*>(buffer.data_ptr()) + row * static_cast<std::int64_t>(sample.nbytes());
    if (sample.nbytes() != 0) std::memcpy(to, sample.data_ptr(), sample.nbytes());
  } else {
    buffer.select(0, row).copy_(sample);
  }
}

constexpr std::int64_t kTensorBytes = 256;  // what a tensor takes besides its elements, roughly

}  // namespace

std::int64_t SampleList::bytes_of(const Run& run) {
  if (!run.buffer.defined()) return static_cast<std::int64_t>(sizeof(Run));
  const bool dense = run.buffer.layout() == c10::kStrided;
  return static_cast<std::int64_t>(sizeof(Run)) + kTensorBytes +
         (run.shared || !dense ? 0 : static_cast<std::int64_t>(run.buffer.nbytes()));
}

void SampleList::append_copy(const at::Tensor& sample) {
  if (!sample.defined() || !is_plain(sample)) {
    append(sample.defined() ? sample.clone() : sample, /*shared=*/false);
    return;
  }
  if (!runs_.empty()) {
    Run& last = runs_.back();
    if (last.packed && last.used < last.buffer.size(0) && fits(last.buffer, sample)) {
      copy_row(last.buffer, last.used, sample);
      ++last.used;
      ++size_;
      return;
    }
  }
  coalesce();
  const auto bytes = std::max<std::int64_t>(static_cast<std::int64_t>(sample.nbytes()), 1);
  const std::int64_t most = std::max<std::int64_t>(kBufferBytes / bytes, 1);
  const std::int64_t capacity = bytes > kPackedBytes ? 1 : std::clamp<std::int64_t>(size_ / kGrowth, 1, most);
  std::vector<std::int64_t> shape{capacity};
  shape.insert(shape.end(), sample.sizes().begin(), sample.sizes().end());
  Run run;
  run.buffer =
      at::empty(shape, sample.options().memory_format(c10::MemoryFormat::Contiguous).requires_grad(false));
  run.packed = true;
  copy_row(run.buffer, 0, sample);
  run.used = 1;
  push(std::move(run));
  ++size_;
}

void SampleList::push(Run run) {
  bytes_ += bytes_of(run);
  runs_.push_back(std::move(run));
}

// Joins small buffers. While there are few samples, a tensor takes more memory than the samples in it.
void SampleList::coalesce() {
  if (runs_.size() < kManyRuns) return;
  std::size_t bytes = 0;
  std::vector<at::Tensor> parts;
  for (const Run& run : runs_) {
    if (!run.packed || !fits(runs_.front().buffer, run.buffer.select(0, 0))) return;
    bytes += run.buffer.nbytes();
    if (bytes > kBufferBytes) return;
    parts.push_back(run.buffer.narrow(0, 0, run.used));
  }
  Run whole;
  whole.buffer = at::cat(parts);
  whole.used = whole.buffer.size(0);
  whole.packed = true;
  runs_.clear();
  bytes_ = 0;
  push(std::move(whole));
}

void SampleList::append(const at::Tensor& sample, bool shared) {
  Run run;
  run.buffer = sample;
  run.used = 1;
  // Inference tensors have no version counter, so that changes cannot be detected.
  run.shared = shared && sample.defined() && !sample.is_inference();
  if (run.shared) run.version = static_cast<std::int64_t>(sample._version());
  push(std::move(run));
  ++size_;
}

void SampleList::append(const SampleList& other) {
  for (Run run : other.runs_) {
    // The other list keeps filling a buffer that is not full, behind the samples taken here.
    if (run.packed) run.buffer = run.buffer.narrow(0, 0, run.used);
    push(std::move(run));
  }
  size_ += other.size_;
}

std::vector<at::Tensor> SampleList::tensors(const std::string& what) const {
  std::vector<at::Tensor> samples;
  samples.reserve(static_cast<std::size_t>(size_));
  for (const Run& run : runs_) {
    if (run.packed) {
      for (std::int64_t row = 0; row < run.used; ++row) samples.push_back(run.buffer.select(0, row));
      continue;
    }
    TORCH_CHECK_VALUE(!run.shared || static_cast<std::int64_t>(run.buffer._version()) == run.version, what,
                      ": sample ", samples.size(),
                      " was captured as an alias and has been changed in place since; capture copies "
                      "(the default), or read aliases before the model changes them.");
    samples.push_back(run.buffer);
  }
  return samples;
}

}  // namespace torchtap::recorders::detail
