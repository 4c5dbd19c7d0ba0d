// Reads outputs once, in pieces that stay in the cache: for the digest, and for what is not finite.
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/monitor/detail/outcome.hpp>

namespace torchtap::views::monitor::detail {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ULL, kPrime2 = 0xC2B2AE3D27D4EB4FULL,
                        kPrime3 = 0x165667B19E3779F9ULL, kPrime4 = 0x85EBCA77C2B2AE63ULL,
                        kPrime5 = 0x27D4EB2F165667C5ULL;
constexpr std::size_t kBlock = 32;
constexpr std::size_t kPiece = std::size_t{16} << 10;  // bytes; a multiple of a block

std::uint64_t rotated(std::uint64_t word, int by) noexcept {
  return (word << by) | (word >> (64 - by));
}
std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) noexcept {
  return rotated(lane + word * kPrime2, 31) * kPrime1;
}

/// Sums of eight lanes, which compilers keep in vector registers.
struct Lanes {
  static constexpr std::size_t number = 8;
  double sum[number] = {}, magnitude[number] = {};
  double all(const double (&lanes)[number]) const noexcept {
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
};

template <class T>
void look_at_values(const char* data, std::size_t bytes, Outcome& outcome) noexcept {
  const auto* const elements = reinterpret_cast<const T*>(data);
  const std::size_t count = bytes / sizeof(T), whole = count - count % Lanes::number;
  Lanes lanes;
  for (std::size_t i = 0; i < whole; i += Lanes::number) {
    for (std::size_t k = 0; k < Lanes::number; ++k) {
      const auto value = static_cast<double>(elements[i + k]);
      lanes.sum[k] += value;
      lanes.magnitude[k] += std::abs(value);
    }
  }
  for (std::size_t i = whole; i < count; ++i) {
    const auto value = static_cast<double>(elements[i]);
    lanes.sum[i % Lanes::number] += value;
    lanes.magnitude[i % Lanes::number] += std::abs(value);
  }
  if (!std::isfinite(lanes.all(lanes.magnitude))) {  // seldom: once more, with each looked at
    lanes = Lanes();
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(elements[i]);
      if (std::isfinite(value)) {
        lanes.sum[i % Lanes::number] += value;
        lanes.magnitude[i % Lanes::number] += std::abs(value);
      } else {
        ++(std::isnan(value) ? outcome.nan : outcome.inf);
      }
    }
  }
  outcome.sum += lanes.all(lanes.sum);
  outcome.magnitude += lanes.all(lanes.magnitude);
}

void look_at_piece(at::ScalarType dtype, const char* data, std::size_t bytes, Outcome& outcome) noexcept {
  switch (dtype) {
    case at::kFloat:
    case at::kComplexFloat:
      return look_at_values<float>(data, bytes, outcome);
    case at::kDouble:
    case at::kComplexDouble:
      return look_at_values<double>(data, bytes, outcome);
    case at::kHalf:
      return look_at_values<at::Half>(data, bytes, outcome);
    case at::kBFloat16:
      return look_at_values<at::BFloat16>(data, bytes, outcome);
    default:  // no others have values that are not finite, or no arithmetic
      return;
  }
}

void add_tensor(const at::Tensor& given, Digest& digest, Outcome& outcome) {
  if (!given.defined()) return;
  const bool readable =
      given.layout() == at::kStrided && given.is_cpu() && given.has_storage() && !given.is_quantized();
  at::Tensor copy;
  const at::Tensor* tensor = &given;
  if (readable && (!given.is_contiguous() || given.is_conj() || given.is_neg())) {
    const base::RecordingMode quiet;
    copy = given.detach().resolve_conj().resolve_neg().contiguous();
    tensor = &copy;
  }
  std::int64_t words[4] = {static_cast<std::int64_t>(given.scalar_type()), given.dim(), 0, 0};
  std::size_t used = 2;
  const auto flush = [&] {
    digest.add(words, sizeof words);
    std::fill(std::begin(words), std::end(words), 0);
    used = 0;
  };
  for (const std::int64_t size : given.sizes()) {
    words[used++] = size;
    if (used == 4) flush();
  }
  if (used != 0) flush();
  if (given.layout() == at::kSparse && given.is_cpu()) {  // looked at, but not in the digest
    const base::RecordingMode quiet;
    const at::Tensor values = given._values().contiguous();
    look_at_piece(values.scalar_type(), static_cast<const char*>(values.data_ptr()), values.nbytes(),
                  outcome);
  }
  if (!readable) return;
  const auto* data = static_cast<const char*>(tensor->data_ptr());
  const std::size_t bytes = tensor->nbytes();
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - at);
    digest.add(data + at, piece);
    look_at_piece(given.scalar_type(), data + at, piece, outcome);
  }
}

}  // namespace

void Digest::block(const unsigned char* bytes) noexcept {
  std::uint64_t words[4];
  std::memcpy(words, bytes, sizeof words);
  for (int i = 0; i < 4; ++i) lanes_[i] = mixed(lanes_[i], words[i]);
}

void Digest::add(const void* data, std::size_t bytes) noexcept {
  const auto* at = static_cast<const unsigned char*>(data);
  bytes_ += (bytes + kBlock - 1) / kBlock * kBlock;
  for (; bytes >= kBlock; bytes -= kBlock, at += kBlock) block(at);
  if (bytes == 0) return;
  unsigned char last[kBlock] = {};
  std::memcpy(last, at, bytes);
  block(last);
}

std::uint64_t Digest::value() const noexcept {
  std::uint64_t hash = kPrime5;  // of nothing
  if (bytes_ != 0) {
    hash = rotated(lanes_[0], 1) + rotated(lanes_[1], 7) + rotated(lanes_[2], 12) + rotated(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ mixed(0, lane)) * kPrime1 + kPrime4;
  }
  hash += bytes_;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

Outcome outcome_of(const hooks::Tensors& outputs) {
  Outcome outcome;
  Digest digest;
  for (std::int64_t i = 0; i < outputs.size(); ++i) add_tensor(outputs[i], digest, outcome);
  outcome.digest = digest.value();
  return outcome;
}

Outcome outcome_of(const std::vector<at::Tensor>& outputs) {
  Outcome outcome;
  Digest digest;
  for (const at::Tensor& tensor : outputs) add_tensor(tensor, digest, outcome);
  outcome.digest = digest.value();
  return outcome;
}

}  // namespace torchtap::views::monitor::detail
