// The part of a spool that collects samples into pieces.
#include <algorithm>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/spool_impl.hpp>

namespace torchtap::storage {

using detail::kPiece;
using detail::Piece;
using detail::Run;

namespace {

constexpr std::size_t kFirstPiece = std::size_t{4} << 10;  // of a stream; later ones grow up to kPiece
constexpr std::size_t kMostRuns = 1024;

/// The sample as a contiguous tensor on the CPU.
at::Tensor plain(const at::Tensor& sample) {
  if (sample.device().is_cpu() && sample.is_contiguous() && !sample.is_conj() && !sample.is_neg() &&
      !sample._is_zerotensor()) {
    return sample;
  }
  const base::RecordingMode quiet;
  at::Tensor tensor = sample.detach();
  if (tensor._is_zerotensor()) tensor = tensor.clone();
  return tensor.resolve_conj().resolve_neg().to(at::kCPU).contiguous();
}

void count(std::vector<Run>& runs, bool defined, c10::ScalarType dtype, at::IntArrayRef sizes,
           std::int64_t more = 1) {
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.defined == defined &&
        (!defined || (last.dtype == dtype && sizes == at::IntArrayRef(last.sizes)))) {
      last.count += more;
      return;
    }
  }
  runs.push_back({defined, dtype, sizes.vec(), more});
}

}  // namespace

void Spool::Stream::append(const at::Tensor& sample, std::optional<std::int64_t> slot) {
  TORCH_CHECK_VALUE(!slot.has_value() || *slot >= 0,
                    "storage::Spool::Stream::append: slots are numbered from 0, got ", *slot,
                    "; leave the slot out where one tensor a sample is recorded.");
  const std::int64_t number = slot.value_or(-1);  // as in files
  Spool::Impl& spool = *impl_->spool;
  spool.check(
      "storage::Spool::Stream::append");  // before the lock, which no thread of a child process would release
  const std::lock_guard lock(impl_->mutex);
  spool.check("storage::Spool::Stream::append");  // again: `close` may have come in between
  if (impl_->last_slot != number) {
    impl_->last = &impl_->pieces[number];
    impl_->last_slot = number;
  }
  if (sample.defined()) {
    impl_->collect(sample, number);
  } else {
    impl_->collect_none(number);
  }
  impl_->samples.fetch_add(1, std::memory_order_relaxed);
}

bool Spool::Stream::append_stack(const at::Tensor& stack) {
  constexpr const char* kAppend = "storage::Spool::Stream::append_stack";
  TORCH_CHECK_VALUE(stack.defined() && stack.dim() > 0, kAppend,
                    ": expected a tensor [n, ...] of n samples, got ",
                    stack.defined() ? "one without dimensions." : "an undefined one.");
  Spool::Impl& spool = *impl_->spool;
  spool.check(kAppend);
  detail::check_value(kAppend, "the stack", core::Value(stack));
  if (stack.size(0) == 0) return false;
  const at::Tensor tensor = plain(stack);
  const std::lock_guard lock(impl_->mutex);
  spool.check(kAppend);
  impl_->last = &impl_->pieces[-1];
  impl_->last_slot = -1;
  const std::uint64_t before = impl_->pushed;
  impl_->collect_stack(tensor);
  return impl_->pushed != before;
}

void Spool::Stream::hand_over() {
  impl_->spool->check("storage::Spool::Stream::hand_over");
  const std::lock_guard lock(impl_->mutex);
  for (auto& [slot, piece] : impl_->pieces) {
    if (piece == nullptr) continue;
    impl_->capacities[slot] = 0;  // the next one will not be filled, either
    impl_->last = &piece;
    impl_->last_slot = slot;
    impl_->push();
  }
}

void Spool::Stream::Impl::begin(std::int64_t slot, std::size_t capacity) {
  auto& piece = *last;
  piece = std::make_unique<Piece>();
  piece->stream = this;
  piece->slot = slot;
  if (capacity > 0) piece->data = spool->queue.buffer(capacity);
  piece->capacity = capacity;
}

void Spool::Stream::Impl::push() {
  if (*last == nullptr) return;
  ++pushed;
  spool->queue.push(std::move(*last));
}

void Spool::Stream::Impl::collect_none(std::int64_t slot) {
  auto& piece = *last;
  if (piece == nullptr) begin(slot, 0);
  count(piece->runs, false, c10::ScalarType::Undefined, {});
  if (piece->runs.size() >= kMostRuns) push();
}

void Spool::Stream::Impl::collect(const at::Tensor& sample, std::int64_t slot) {
  auto& piece = *last;
  const c10::ScalarType dtype = sample.scalar_type();
  const bool familiar = piece != nullptr && piece->dtype == dtype && sample.layout() == c10::kStrided &&
                        sample.device().is_cpu() && sample.has_storage();
  if (!familiar) detail::check_value("storage::Spool::Stream::append", "the sample", core::Value(sample));
  const at::Tensor tensor = plain(sample);
  const auto bytes = static_cast<std::size_t>(tensor.nbytes());
  const auto* data = static_cast<const char*>(tensor.data_ptr());
  const bool other = piece != nullptr && piece->dtype != dtype && piece->dtype != c10::ScalarType::Undefined;
  if (piece != nullptr && (other || piece->used + bytes > piece->capacity)) push();
  if (bytes > kPiece) return collect_large(tensor, slot);
  if (piece == nullptr) begin(slot, grow(slot, bytes));
  piece->dtype = dtype;
  if (bytes != 0) std::memcpy(piece->data.get() + piece->used, data, bytes);
  piece->used += bytes;
  count(piece->runs, true, dtype, sample.sizes());
  if (piece->runs.size() >= kMostRuns) push();
}

/// The size of the next piece, which holds at least `bytes` bytes.
std::size_t Spool::Stream::Impl::grow(std::int64_t slot, std::size_t bytes) {
  std::size_t& capacity = capacities[slot];
  const auto most = std::min(kPiece, static_cast<std::size_t>(spool->options.shard_bytes()));
  return capacity = std::max(std::min(capacity == 0 ? kFirstPiece : 2 * capacity, most), bytes);
}

/// Fills pieces with whole samples.
void Spool::Stream::Impl::collect_stack(const at::Tensor& stack) {
  auto& piece = *last;
  const at::IntArrayRef sizes = stack.sizes().slice(1);
  const c10::ScalarType dtype = stack.scalar_type();
  auto left = static_cast<std::size_t>(stack.size(0));
  const std::size_t bytes = static_cast<std::size_t>(stack.nbytes()) / left;
  if (piece != nullptr && piece->dtype != dtype && piece->dtype != c10::ScalarType::Undefined) push();
  if (bytes > kPiece) {
    push();
    for (std::int64_t i = 0; i < stack.size(0); ++i) {
      collect_large(stack.select(0, i), -1);
      samples.fetch_add(1, std::memory_order_relaxed);
    }
    return;
  }
  for (const auto* data = static_cast<const char*>(stack.data_ptr()); left > 0;) {
    if (piece != nullptr && piece->used + bytes > piece->capacity) push();
    if (piece == nullptr) {
      const auto most = std::min(kPiece, static_cast<std::size_t>(spool->options.shard_bytes()));
      begin(-1, left * bytes >= most ? std::max(most, bytes) : grow(-1, bytes));
    }
    const std::size_t fits = bytes == 0 ? left : std::min(left, (piece->capacity - piece->used) / bytes);
    piece->dtype = dtype;
    if (bytes != 0) std::memcpy(piece->data.get() + piece->used, data, fits * bytes);
    piece->used += fits * bytes;
    count(piece->runs, true, dtype, sizes, static_cast<std::int64_t>(fits));
    samples.fetch_add(static_cast<std::int64_t>(fits), std::memory_order_relaxed);
    data += fits * bytes;
    left -= fits;
    if (piece->runs.size() >= kMostRuns || (bytes != 0 && piece->used + bytes > piece->capacity)) push();
  }
}

/// Splits a large sample into pieces.
void Spool::Stream::Impl::collect_large(const at::Tensor& tensor, std::int64_t slot) {
  auto& piece = *last;
  const auto bytes = static_cast<std::size_t>(tensor.nbytes());
  const auto* data = static_cast<const char*>(tensor.data_ptr());
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    begin(slot, kPiece);
    piece->dtype = tensor.scalar_type();
    piece->used = std::min(kPiece, bytes - at);
    piece->continues = at > 0;
    if (at == 0) {
      piece->begins = bytes;
      piece->sizes = tensor.sizes().vec();
    }
    std::memcpy(piece->data.get(), data + at, piece->used);
    if (at + piece->used == bytes) count(piece->runs, true, tensor.scalar_type(), tensor.sizes());
    push();
  }
}

}  // namespace torchtap::storage
