// One pass over memory. A number without its sign is infinite if it equals the exponent's bits, NaN if above.
#include <ATen/Functions.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <locale>
#include <sstream>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/storage/dtype.hpp>
#include <torchtap/views/report/detail/non_finite_scan.hpp>

namespace torchtap::views::report::detail {
namespace {

struct Found {
  bool nan = false, inf = false;
};

// As wide as the registers that every processor of the architecture has.
template <class U>
struct LanesOf {
  typedef U type
      __attribute__((vector_size(16)));  // NOLINT(modernize-use-using): no attribute in a template's using
};
template <class U>
using Lanes = typename LanesOf<U>::type;
template <class U>
constexpr std::size_t lanes = sizeof(Lanes<U>) / sizeof(U);

template <class U>
Lanes<U> load(const U* from) {
  Lanes<U> loaded;
  std::memcpy(&loaded, from, sizeof(loaded));
  return loaded;
}

template <class U>
void one(U bits, U exponent, Found& found) {
  const U magnitude = bits & (static_cast<U>(~U{0}) >> 1);
  found.nan = found.nan || magnitude > exponent;
  found.inf = found.inf || magnitude == exponent;
}

/// `size` numbers in a row.
template <class U>
void run(const U* data, std::int64_t size, U exponent, Found& found) {
  constexpr auto width = static_cast<std::int64_t>(lanes<U>);
  const Lanes<U> mask = Lanes<U>{} + exponent;
  const Lanes<U> magnitude = Lanes<U>{} + static_cast<U>(static_cast<U>(~U{0}) >> 1);
  Lanes<U> inf{}, nan{};  // the sign of `mask - a` says that `a` is greater
  std::int64_t i = 0;
  for (; i + 2 * width <= size; i += 2 * width) {
    const Lanes<U> a = load(data + i) & magnitude, b = load(data + i + width) & magnitude;
    inf |= (Lanes<U>)(a == mask) | (Lanes<U>)(b == mask);
    nan |= (mask - a) | (mask - b);
  }
  for (std::int64_t lane = 0; lane < width; ++lane) {
    found.inf = found.inf || inf[lane] != 0;
    found.nan = found.nan || (nan[lane] & ~magnitude[lane]) != 0;
  }
  for (; i < size; ++i) one(data[i], exponent, found);
}

struct Dimension {
  std::int64_t size, stride;
};

/// Elements that lie in any way. `per` numbers make an element.
template <class U>
void walk(const U* data, const Dimension* first, const Dimension* last, std::int64_t per, U exponent,
          Found& found) {
  if (first == last) return run(data, per, exponent, found);
  if (last - first == 1 && first->stride == 1) return run(data, first->size * per, exponent, found);
  for (std::int64_t i = 0; i < first->size; ++i) {
    walk(data + i * first->stride * per, first + 1, last, per, exponent, found);
  }
}

template <class U>
Found look(const at::Tensor& tensor, U exponent, std::int64_t per) {
  Found found;
  const auto* data = static_cast<const U*>(
      static_cast<const void*>(static_cast<const char*>(tensor.storage().data()) +
                               tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size())));
  if (tensor.is_non_overlapping_and_dense()) {
    run(data, tensor.numel() * per, exponent, found);
    return found;
  }
  c10::SmallVector<Dimension, 6> dimensions;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) != 0) dimensions.push_back({tensor.size(i), tensor.stride(i)});  // or expanded
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  walk(data, dimensions.begin(), dimensions.end(), per, exponent, found);
  return found;
}

Scan scan_elsewhere(const at::Tensor& tensor) {
  const base::RecordingMode mode;
  Scan result;
  if (base::is_capturing(tensor.device())) return result;
  result.known = true;
  if (at::isfinite(tensor).all().item<bool>()) return result;
  result.nan = at::isnan(tensor).any().item<bool>();
  result.inf = at::isinf(tensor).any().item<bool>();
  return result;
}

}  // namespace

bool is_looked_through(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return !tensor.is_nested() && !tensor.is_meta() &&
         (type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16 ||
          type == at::kComplexFloat || type == at::kComplexDouble);
}

Scan scan(const at::Tensor& tensor) {
  if (!is_looked_through(tensor)) return {};
  if (tensor.is_sparse()) {
    const base::RecordingMode mode;
    return scan(tensor._values());
  }
  if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return {};
  if (!tensor.is_cpu()) return scan_elsewhere(tensor);
  Scan result;
  result.known = true;
  if (tensor.numel() == 0) return result;
  if (tensor.storage().data() == nullptr) return {};
  Found found;
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kComplexFloat:
      found = look<std::uint32_t>(tensor, 0x7f800000U, tensor.is_complex() ? 2 : 1);
      break;
    case at::kDouble:
    case at::kComplexDouble:
      found = look<std::uint64_t>(tensor, 0x7ff0000000000000U, tensor.is_complex() ? 2 : 1);
      break;
    case at::kHalf:
      found = look<std::uint16_t>(tensor, 0x7c00U, 1);
      break;
    default:
      found = look<std::uint16_t>(tensor, 0x7f80U, 1);
      break;
  }
  result.nan = found.nan;
  result.inf = found.inf;
  return result;
}

NonFinite count_non_finite(const at::Tensor& tensor) {
  const base::RecordingMode mode;
  const at::Tensor values = tensor.is_sparse() ? tensor._values() : tensor;
  return {at::isnan(values).sum().item<std::int64_t>(), at::isinf(values).sum().item<std::int64_t>()};
}

bool has_positive_infinity(const at::Tensor& tensor) {
  const base::RecordingMode mode;
  const at::Tensor values = tensor.is_sparse() ? tensor._values() : tensor;
  if (values.is_complex()) return at::isinf(values).any().item<bool>();
  return values.eq(std::numeric_limits<double>::infinity()).any().item<bool>();
}

std::string statistics(const at::Tensor& tensor) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << storage::dtype_name(tensor.scalar_type()) << ' ';
  if (tensor.is_nested() || tensor.layout() != c10::kStrided) {
    text << "of layout " << tensor.layout();
    return text.str();
  }
  text << tensor.sizes();
  if (!is_looked_through(tensor) || tensor.is_complex()) return text.str();
  const base::RecordingMode mode;
  const at::Tensor finite = tensor.masked_select(at::isfinite(tensor)).to(at::kDouble);
  if (finite.numel() > 0) {
    text << ", minimum " << finite.min().item<double>() << ", maximum " << finite.max().item<double>()
         << ", mean " << finite.mean().item<double>();
  }
  const NonFinite values = count_non_finite(tensor);
  if (values.nan > 0) text << ", " << values.nan << " NaN";
  if (values.inf > 0) text << ", " << values.inf << " infinite";
  return text.str();
}

}  // namespace torchtap::views::report::detail
