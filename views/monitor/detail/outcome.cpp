// Reads outputs once, in pieces that stay in the cache, for the digest and for counts of NaN and infinities.
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/monitor/detail/digest.hpp>
#include <torchtap/views/monitor/detail/outcome.hpp>

namespace torchtap::views::monitor::detail {
namespace {

constexpr std::size_t kPiece = std::size_t{16} << 10;  // bytes

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
  const std::int64_t kind[] = {static_cast<std::int64_t>(given.scalar_type()), given.dim()};
  digest.add(kind, sizeof kind);
  digest.add(given.sizes().data(), given.sizes().size() * sizeof(std::int64_t));
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
