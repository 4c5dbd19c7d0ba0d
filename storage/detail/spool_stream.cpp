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

void count(std::vector<Run>& runs, bool defined, c10::ScalarType dtype, at::IntArrayRef sizes) {
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.defined == defined &&
        (!defined || (last.dtype == dtype && sizes == at::IntArrayRef(last.sizes)))) {
      ++last.count;
      return;
    }
  }
  runs.push_back({defined, dtype, sizes.vec(), 1});
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

void Spool::Stream::Impl::begin(std::int64_t slot, std::unique_ptr<char[]> data, std::size_t capacity) {
  auto& piece = *last;
  piece = std::make_unique<Piece>();
  piece->stream = this;
  piece->slot = slot;
  piece->data = std::move(data);
  piece->capacity = capacity;
}

void Spool::Stream::Impl::push() {
  if (*last != nullptr) spool->push(std::move(*last));
}

void Spool::Stream::Impl::collect_none(std::int64_t slot) {
  auto& piece = *last;
  if (piece == nullptr) begin(slot, nullptr, 0);
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
  if (piece == nullptr) {
    std::size_t& capacity = capacities[slot];
    const auto most = std::min(kPiece, static_cast<std::size_t>(spool->options.shard_bytes()));
    capacity = std::max(std::min(capacity == 0 ? kFirstPiece : 2 * capacity, most), bytes);
    begin(slot, capacity == kPiece ? spool->buffer() : std::unique_ptr<char[]>(new char[capacity]), capacity);
  }
  piece->dtype = dtype;
  if (bytes != 0) std::memcpy(piece->data.get() + piece->used, data, bytes);
  piece->used += bytes;
  count(piece->runs, true, dtype, sample.sizes());
  if (piece->runs.size() >= kMostRuns) push();
}

/// Splits a large sample into pieces.
void Spool::Stream::Impl::collect_large(const at::Tensor& tensor, std::int64_t slot) {
  auto& piece = *last;
  const auto bytes = static_cast<std::size_t>(tensor.nbytes());
  const auto* data = static_cast<const char*>(tensor.data_ptr());
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    begin(slot, spool->buffer(), kPiece);
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
