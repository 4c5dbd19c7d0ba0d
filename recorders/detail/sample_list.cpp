// Packs small samples into buffers.
#include <ATen/Functions.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/reused_memory.hpp>
#include <torchtap/recorders/detail/sample_list.hpp>

namespace torchtap::recorders::detail {
namespace {

constexpr std::int64_t kPackedBytes = 64 << 10;  // larger samples get separate allocations
constexpr std::int64_t kBufferBytes = 1 << 20;
// A new buffer has room for 1/48 of the samples, which may stay unused.
constexpr std::int64_t kGrowth = 48;
// While there are few samples, it has room for an eighth of them, up to these bytes: a tensor object takes
// more memory than the unused part.
constexpr std::int64_t kFirstGrowth = 8;
constexpr std::int64_t kFirstBytes = 4 << 10;
constexpr std::size_t kManyRuns = 16;
constexpr std::int64_t kCoalesced = 512 << 10;  // in larger buffers, a tensor object takes little
constexpr std::int64_t kTensorBytes = 256;      // of a tensor object besides its elements, about

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor._is_zerotensor() &&
         !tensor.key_set().has(c10::DispatchKey::NestedTensor);
}

/// A tensor that stands for something else (conjugate, wrapped by functorch or in Python) has dispatch keys
/// that an ordinary CPU tensor does not have.
bool is_usual_on_cpu(const at::Tensor& tensor) {
  constexpr auto kUsual = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  return tensor.key_set() - kUsual == c10::DispatchKeySet(c10::DispatchKey::CPU) && tensor.has_storage();
}

/// Whether its elements can be copied as bytes from its memory.
bool is_plain_on_cpu(const at::Tensor& tensor) {
  return is_usual_on_cpu(tensor) && tensor.is_contiguous();
}

/// Its elements, to be read: unlike `data_ptr`, this does not make a copy of memory that is shared until
/// somebody writes to it.
const char* bytes_in(const at::Tensor& tensor) {
  const void* storage = tensor.storage().data();
  return static_cast<const char*>(storage) +
         tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize());
}

}  // namespace

bool SampleList::fits(const Run& run, const at::Tensor& sample) {
  return run.buffer.dtype() == sample.dtype() && run.buffer.sizes().slice(1) == sample.sizes();
}

std::int64_t SampleList::bytes_of(const Run& run) {
  if (!run.buffer.defined()) return static_cast<std::int64_t>(sizeof(Run));
  const bool dense = run.buffer.layout() == c10::kStrided;
  return static_cast<std::int64_t>(sizeof(Run)) + kTensorBytes +
         (run.shared || !dense ? 0 : static_cast<std::int64_t>(run.buffer.nbytes()));
}

/// Appends copies of `rows` samples to `run`, which has room.
void SampleList::copy_bytes(Run& run, const char* from, std::int64_t rows) {
  if (run.row_bytes != 0) {
    std::memcpy(run.data + run.used * run.row_bytes, from, static_cast<std::size_t>(rows * run.row_bytes));
  }
  run.used += rows;
}

void SampleList::copy_sample(Run& run, const at::Tensor& sample) {
  if (run.plain && is_plain_on_cpu(sample)) return copy_bytes(run, bytes_in(sample), 1);
  run.buffer.select(0, run.used).copy_(sample);
  ++run.used;
}

bool SampleList::append_alike(const at::Tensor& sample) {
  if (runs_.empty() || !sample.defined()) return false;
  Run& last = runs_.back();
  if (!last.plain || last.used == last.capacity || !is_plain_on_cpu(sample) || !fits(last, sample))
    return false;
  copy_bytes(last, bytes_in(sample), 1);
  ++size_;
  return true;
}

void SampleList::append_copy(const at::Tensor& sample) {
  if (append_alike(sample)) return;
  if (!sample.defined()) return append(sample, /*shared=*/false);
  const base::RecordingMode quiet;
  if (!is_plain(sample)) return append(sample.clone(), /*shared=*/false);
  const bool room = !runs_.empty() && runs_.back().packed && runs_.back().used < runs_.back().capacity;
  if (room && runs_.back().buffer.device() == sample.device() && fits(runs_.back(), sample)) {
    copy_sample(runs_.back(), sample);
    ++size_;
    return;
  }
  coalesce();
  const auto bytes = std::max<std::int64_t>(static_cast<std::int64_t>(sample.nbytes()), 1);
  const std::int64_t few = std::min(size_ / kFirstGrowth, kFirstBytes / bytes);
  const std::int64_t most = bytes > kPackedBytes ? 1 : kBufferBytes / bytes;
  Run run = packed(sample, std::clamp<std::int64_t>(std::max(size_ / kGrowth, few), 1, most));
  copy_sample(run, sample);
  push(std::move(run));
  ++size_;
}

/// An empty buffer for samples like this one.
SampleList::Run SampleList::packed(const at::Tensor& sample, std::int64_t capacity) {
  c10::SmallVector<std::int64_t, 6> shape{capacity};
  shape.append(sample.sizes().begin(), sample.sizes().end());
  Run run;
  run.capacity = capacity;
  run.packed = true;
  run.row_bytes = static_cast<std::int64_t>(sample.nbytes());
  if (is_usual_on_cpu(sample)) {  // as at::empty does, from other memory
    run.buffer = at::detail::make_tensor<c10::TensorImpl>(
        base::reused_storage(static_cast<std::size_t>(capacity * run.row_bytes)),
        c10::DispatchKeySet(c10::DispatchKey::CPU), sample.dtype());
    run.buffer.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
    run.data = static_cast<char*>(run.buffer.data_ptr());
    run.plain = true;
  } else {
    run.buffer =
        at::empty(shape, sample.options().memory_format(c10::MemoryFormat::Contiguous).requires_grad(false));
  }
  return run;
}

void SampleList::push(Run run) {
  const std::int64_t bytes = bytes_of(run);
  runs_.push_back(std::move(run));
  bytes_ += bytes;
}

// Joins small buffers. While there are few samples, a tensor takes more memory than the samples in it.
void SampleList::coalesce() {
  if (runs_.size() < kManyRuns) return;
  const Run& first = runs_.front();
  std::int64_t bytes = 0;
  std::int64_t samples = 0;
  for (const Run& run : runs_) {
    if (!run.packed || run.buffer.dtype() != first.buffer.dtype() ||
        run.buffer.device() != first.buffer.device() ||
        run.buffer.sizes().slice(1) != first.buffer.sizes().slice(1))
      return;
    bytes += run.used * run.row_bytes;
    samples += run.used;
    if (bytes > kCoalesced) return;
  }
  Run whole = packed(first.buffer.select(0, 0), samples);
  for (const Run& run : runs_) {
    if (whole.plain && run.plain) {
      copy_bytes(whole, run.data, run.used);
    } else {
      whole.buffer.narrow(0, whole.used, run.used).copy_(run.buffer.narrow(0, 0, run.used));
      whole.used += run.used;
    }
  }
  runs_.clear();
  bytes_ = 0;
  push(std::move(whole));
}

void SampleList::append(const at::Tensor& sample, bool shared) {
  Run run;
  run.buffer = sample;
  run.used = run.capacity = 1;
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
    run.capacity = run.used;
    push(std::move(run));
  }
  size_ += other.size_;
}

void SampleList::drop_last() noexcept {
  --size_;
  if (--runs_.back().used > 0) return;
  bytes_ -= bytes_of(runs_.back());
  runs_.pop_back();
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
