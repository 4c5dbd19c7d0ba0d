// Fingerprints of tensors, whatever their strides, dtypes and devices are.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/compare/detail/blocks.hpp>
#include <torchtap/views/compare/fingerprint.hpp>

namespace torchtap::views::compare {
namespace {

using detail::Element;
using detail::Sums;

constexpr std::int64_t kPiece = 1 << 18;  // elements that one thread reads at a time
constexpr std::int64_t kCopied = 4096;    // elements that are copied side by side at a time

/// The kind of a dtype's elements, a complex number being two; nothing if it has no fingerprint.
std::optional<Element> element_of(c10::ScalarType type) {
  switch (static_cast<int>(type)) {
    case static_cast<int>(c10::ScalarType::Float):
    case static_cast<int>(c10::ScalarType::ComplexFloat):
    case static_cast<int>(c10::ScalarType::QInt8):  // as `dequantize()` gives them
    case static_cast<int>(c10::ScalarType::QUInt8):
    case static_cast<int>(c10::ScalarType::QInt32):
    case static_cast<int>(c10::ScalarType::QUInt4x2):
    case static_cast<int>(c10::ScalarType::QUInt2x4):
      return Element::f32;
    case static_cast<int>(c10::ScalarType::Double):
    case static_cast<int>(c10::ScalarType::ComplexDouble):
      return Element::f64;
    case static_cast<int>(c10::ScalarType::Half):
    case static_cast<int>(c10::ScalarType::ComplexHalf):
      return Element::f16;
    case static_cast<int>(c10::ScalarType::BFloat16):
      return Element::bf16;
    case static_cast<int>(c10::ScalarType::Char):
      return Element::i8;
    case static_cast<int>(c10::ScalarType::Short):
      return Element::i16;
    case static_cast<int>(c10::ScalarType::Int):
      return Element::i32;
    case static_cast<int>(c10::ScalarType::Long):
      return Element::i64;
    case static_cast<int>(c10::ScalarType::Byte):
    case static_cast<int>(c10::ScalarType::Bool):
      return Element::u8;
    // Older LibTorch lacks the names of these.
    case 23:  // Float8_e5m2
    case 24:  // Float8_e4m3fn
    case 25:  // Float8_e5m2fnuz
    case 26:  // Float8_e4m3fnuz
    case 44:  // Float8_e8m0fnu
      return Element::f8;
    case 27:  // UInt16
      return Element::u16;
    case 28:  // UInt32
      return Element::u32;
    case 29:  // UInt64
      return Element::u64;
    default:
      return std::nullopt;
  }
}

/// Elements in row-major order, wherever they lie.
class Elements {
 public:
  /// Strides are in elements; without them the elements lie side by side. Real and imaginary parts are an
  /// extra dimension.
  Elements(c10::ScalarType type, const void* data, at::IntArrayRef sizes, at::IntArrayRef strides)
      : type(*element_of(type)), data(static_cast<const char*>(data)) {
    const bool complex = c10::isComplexType(type);
    item_ = static_cast<std::int64_t>(c10::isQIntType(type) ? sizeof(float) : c10::elementSize(type)) /
            (complex ? 2 : 1);
    if (complex) push(2, 1);
    numel = complex ? 2 : 1;
    for (std::size_t i = sizes.size(); i-- > 0;) {
      const std::int64_t stride = strides.empty() ? numel : strides[i] * (complex ? 2 : 1);
      if (sizes[i] != 1) push(sizes[i], stride);
      numel *= sizes[i];
    }
  }

  /// Replaces the numbers of elements by where they lie, in elements behind `data`.
  void find(std::int64_t* begin, std::int64_t* end) const {
    if (!side_by_side()) std::transform(begin, end, begin, [&](std::int64_t i) { return place(i); });
  }

  void add(std::int64_t first, std::int64_t n, const float* table, Sums& sums) const {
    if (side_by_side()) return detail::add(type, data + first * item_, n, first, table, sums);
    struct alignas(64) Room {
      char bytes[kCopied * sizeof(double)];
    };
    const auto room = std::make_unique<Room>();  // stacks of threads may be small
    char* const copied = room->bytes;
    for (std::int64_t i = 0; i < n; i += kCopied) {
      const std::int64_t some = std::min(kCopied, n - i);
      copy(first + i, some, copied);
      detail::add(type, copied, some, first + i, table, sums);
    }
  }

  std::int64_t item() const { return item_; }

  Element type;
  const char* data;
  std::int64_t numel;

 private:
  bool side_by_side() const { return dims_ == 0 || (dims_ == 1 && strides_[0] == 1); }

  std::int64_t place(std::int64_t i) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d + 1 < dims_; ++d) {
      offset += i % sizes_[d] * strides_[d];
      i /= sizes_[d];
    }
    return offset + i * strides_[dims_ - 1];
  }

  /// Adds a dimension outside of all others, or makes the outermost one longer.
  void push(std::int64_t size, std::int64_t stride) {
    if (dims_ != 0 && stride == sizes_[dims_ - 1] * strides_[dims_ - 1]) {
      sizes_[dims_ - 1] *= size;
    } else {
      sizes_[dims_] = size;
      strides_[dims_++] = stride;
    }
  }

  template <class T>
  static char* copy_run(const char* from, std::int64_t n, std::int64_t stride, char* to) {
    for (std::int64_t i = 0; i < n; ++i, to += sizeof(T), from += stride * sizeof(T))
      std::memcpy(to, from, sizeof(T));
    return to;
  }

  void copy(std::int64_t first, std::int64_t n, char* to) const {
    while (n > 0) {
      const std::int64_t run = std::min(n, sizes_[0] - first % sizes_[0]);
      const char* const from = data + place(first) * item_;
      if (strides_[0] == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(run * item_));
        to += run * item_;
      } else {
        to = item_ == 1   ? copy_run<std::uint8_t>(from, run, strides_[0], to)
             : item_ == 2 ? copy_run<std::uint16_t>(from, run, strides_[0], to)
             : item_ == 4 ? copy_run<std::uint32_t>(from, run, strides_[0], to)
                          : copy_run<std::uint64_t>(from, run, strides_[0], to);
      }
      first += run;
      n -= run;
    }
  }

  std::int64_t item_ = 0;  // bytes
  std::size_t dims_ = 0;   // innermost first; neighbours without a gap are one
  std::array<std::int64_t, Fingerprint::kDims + 1> sizes_, strides_;
};

/// Hashes where elements are not finite. Few tensors have such, so that these alone pay for it.
std::uint32_t places_of(const Elements& elements, std::int64_t first, std::int64_t end, const float* table) {
  std::uint32_t hash = 0;
  std::vector<std::int64_t> room(kCopied);
  std::vector<float> of_places(kCopied);
  std::int64_t* const places = room.data();
  float* const numbers = of_places.data();
  for (std::int64_t i = first; i < end; i += kCopied) {
    const std::int64_t some = std::min(kCopied, end - i);
    std::iota(places, places + some, i);
    elements.find(places, places + some);
    const bool wide = elements.type == Element::f64;  // float32 does not hold all of these
    if (!wide) detail::take(elements.type, elements.data, places, static_cast<int>(some), table, numbers);
    for (std::int64_t k = 0; k < some; ++k) {
      double number = 0;
      wide ? void(std::memcpy(&number, elements.data + places[k] * elements.item(), sizeof number))
           : void(number = double{numbers[k]});
      if (std::isfinite(number)) continue;
      const std::uint64_t kind = std::isnan(number) ? 1 : number > 0 ? 2 : 3;
      hash += static_cast<std::uint32_t>(base::split_mix(4 * static_cast<std::uint64_t>(i + k) + kind));
    }
  }
  return hash;
}

/// Makes `part` the fingerprint of a piece; facts about the whole tensor stay.
void read(const Elements& elements, std::int64_t first, const float* table, Fingerprint& part) {
  Sums sums(part.sketch);
  const std::int64_t size = std::min(kPiece, elements.numel - first);
  elements.add(first, size, table, sums);
  if (sums.nans + sums.infinities != 0) part.places = places_of(elements, first, first + size, table);
  part.digest[0] = sums.bits.digest[0];
  part.digest[1] = sums.bits.digest[1];
  part.words = sums.bits.elements;
  for (int k = 0; k < detail::kRow; ++k) {
    part.exclusive ^= sums.bits.exclusive[k];
    part.either |= sums.bits.either[k];
  }
  for (int bits = 16; bits >= 8 * elements.item(); bits /= 2) {  // words that hold several elements
    part.exclusive = (part.exclusive >> bits ^ part.exclusive) & ((1U << bits) - 1);
    part.either = (part.either >> bits | part.either) & ((1U << bits) - 1);
  }
  part.nans = sums.nans;
  part.infinities = sums.infinities;
  part.zeros = sums.zeros;
  for (int width = detail::kWide / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) {
      sums.sum[k] += sums.sum[k + width];
      sums.sum_sq[k] += sums.sum_sq[k + width];
    }
  }
  part.sum = sums.sum[0];
  part.sum_sq = sums.sum_sq[0];
  part.least = sums.least + 0.0;  // -0 is 0
  part.greatest = sums.greatest + 0.0;
}

void add(const Fingerprint& part, Fingerprint& to) {
  to.digest[0] += part.digest[0];
  to.digest[1] += part.digest[1];
  to.places += part.places;
  to.words += part.words;
  to.exclusive ^= part.exclusive;
  to.either |= part.either;
  to.nans += part.nans;
  to.infinities += part.infinities;
  to.zeros += part.zeros;
  to.sum += part.sum;
  to.sum_sq += part.sum_sq;
  to.least = std::min(to.least, part.least);
  to.greatest = std::max(to.greatest, part.greatest);
  for (int l = 0; l < detail::kLanes; ++l) to.sketch[l] += part.sketch[l];
}

constexpr auto kDraws = [] {
  std::array<std::uint64_t, Fingerprint::kSamples> draws{};
  for (std::size_t k = 0; k < draws.size(); ++k) draws[k] = detail::draw(6, k);
  return draws;
}();

__extension__ using Wide = unsigned __int128;

void take_samples(const Elements& elements, const float* table, Fingerprint& to) {
  const auto n = static_cast<std::uint64_t>(elements.numel), most = std::min<std::uint64_t>(n, kDraws.size());
  std::int64_t places[Fingerprint::kSamples];
  for (std::uint64_t k = 0; k < most; ++k) {
    std::uint64_t i = k;
    if (n > kDraws.size()) {
      const std::uint64_t begin = k * n / kDraws.size(), end = (k + 1) * n / kDraws.size();
      i = begin + static_cast<std::uint64_t>(Wide{kDraws[k]} * (end - begin) >> 64);
    }
    places[k] = static_cast<std::int64_t>(i);
  }
  elements.find(places, places + most);
  detail::take(elements.type, elements.data, places, static_cast<int>(most), table, to.samples);
}

/// The 256 numbers of an 8-bit dtype.
at::Tensor numbers_of(c10::ScalarType type) {
  const base::RecordingMode mode;
  return at::arange(256, at::kInt).to(at::kByte).view(type).to(at::kFloat);
}

Fingerprint make(c10::ScalarType type, const void* data, at::IntArrayRef sizes, at::IntArrayRef strides) {
  Fingerprint made;
  made.dtype = static_cast<std::uint8_t>(type);
  made.dims = static_cast<std::uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), made.sizes);
  const Elements elements(type, data, sizes, strides);
  const at::Tensor numbers = elements.type == Element::f8 ? numbers_of(type) : at::Tensor();
  const float* const table = numbers.defined() ? static_cast<const float*>(numbers.data_ptr()) : nullptr;
  if (elements.numel <= kPiece) {
    read(elements, 0, table, made);
  } else {  // the pieces are the same for any number of threads, and added in order
    std::vector<Fingerprint> parts(static_cast<std::size_t>((elements.numel + kPiece - 1) / kPiece));
    at::parallel_for(0, static_cast<std::int64_t>(parts.size()), 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i)
                         read(elements, i * kPiece, table, parts[static_cast<std::size_t>(i)]);
                     });
    for (const Fingerprint& part : parts) add(part, made);
  }
  if (made.places == 0 && made.nans + made.infinities != 0) made.places = 1;
  std::uint64_t shape = made.dtype + std::uint64_t{1};
  for (const std::int64_t size : sizes)
    shape = shape * detail::kGolden + static_cast<std::uint64_t>(size) + 1;
  made.digest[0] = base::split_mix(made.digest[0] ^ shape);
  made.digest[1] = base::split_mix(made.digest[1] + shape);
  take_samples(elements, table, made);
  return made;
}

/// Why a tensor has no fingerprint; null if it has one.
const char* obstacle(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (tensor.is_nested()) return "nested";
  if (tensor.layout() != c10::kStrided) return "sparse, or laid out in another way of its own";
  if (tensor.is_meta()) return "on the device meta, without data";
  if (tensor.dim() > Fingerprint::kDims) return "of more than 8 dimensions";
  return nullptr;
}

}  // namespace

Fingerprint fingerprint(const at::Tensor& tensor) {
  const char* const why = obstacle(tensor);
  TORCH_CHECK_VALUE(
      why == nullptr,
      "fingerprint: expected a dense tensor of at most 8 dimensions with data, got one that is ", why,
      ". Pass the tensor that holds its values.");
  const c10::ScalarType type = tensor.scalar_type();
  TORCH_CHECK_TYPE(element_of(type), "fingerprint: expected a dtype of numbers, got ", base::dtype_text(type),
                   ". Convert the tensor first.");
  if (!tensor.is_cpu() || tensor.is_quantized() || tensor.is_conj() || tensor.is_neg() ||
      tensor._is_zerotensor()) {
    const base::RecordingMode mode;
    base::expect_no_capture(tensor.device(), "fingerprint");
    at::Tensor plain = tensor.detach();
    if (plain._is_zerotensor()) plain = plain.clone();
    plain = plain.resolve_conj().resolve_neg().cpu();
    if (plain.is_quantized()) plain = plain.dequantize();
    return make(type, plain.data_ptr(), plain.sizes(), plain.strides());
  }
  return make(type, tensor.data_ptr(), tensor.sizes(), tensor.strides());
}

bool same_bits(const Fingerprint& a, const Fingerprint& b) {
  return a.dtype == b.dtype && a.shape() == b.shape() && a.digest[0] == b.digest[0] &&
         a.digest[1] == b.digest[1];
}

namespace {

/// The norms of a, b and a - b, up to one factor.
struct Norms {
  double a, b, apart;
};
Norms norms(const Fingerprint& a, const Fingerprint& b) {
  const auto sum = [](const auto& term) {
    double result = 0;
    for (int l = 0; l < Fingerprint::kSketch; ++l) result += term(l) * term(l);
    return result;
  };
  double unit = 1;
  const auto lost = [](double square) { return square < 1e-290 || std::isinf(square); };
  const bool scaled = lost(a.sum_sq) || lost(b.sum_sq);  // squares of very large or small numbers
  if (scaled) {
    unit = std::numeric_limits<double>::min();
    for (int l = 0; l < Fingerprint::kSketch; ++l)
      unit = std::max({unit, std::abs(a.sketch[l]), std::abs(b.sketch[l])});
  }
  const double apart = sum([&](int l) { return a.sketch[l] / unit - b.sketch[l] / unit; });
  const double of_a = scaled ? sum([&](int l) { return a.sketch[l] / unit; }) : a.sum_sq;
  const double of_b = scaled ? sum([&](int l) { return b.sketch[l] / unit; }) : b.sum_sq;
  return {std::sqrt(of_a), std::sqrt(of_b), std::sqrt(apart)};
}

}  // namespace

double relative_error(const Fingerprint& a, const Fingerprint& b) {
  const bool elsewhere = a.places != b.places && a.places != 0 && b.places != 0;
  if (a.numel() != b.numel() || a.nans != b.nans || a.infinities != b.infinities || elsewhere)
    return std::numeric_limits<double>::infinity();
  const Norms norm = norms(a, b);
  return norm.apart == 0 ? 0 : norm.apart / std::max(norm.a, norm.b);
}

double log_scale(const Fingerprint& a, const Fingerprint& b) {
  if (a.sum_sq == b.sum_sq && !std::isinf(a.sum_sq)) return 0;
  const Norms norm = norms(a, b);
  return norm.a == norm.b ? 0 : std::log(norm.b / norm.a);
}

}  // namespace torchtap::views::compare

extern "C" int torchtap_fingerprint(const void* contiguous, int dtype, int dims, const std::int64_t* sizes,
                                    void* fingerprint) {
  using namespace torchtap::views::compare;
  if (dims < 0 || dims > Fingerprint::kDims) return 1;
  const auto type = static_cast<c10::ScalarType>(dtype);
  if (dtype < 0 || dtype >= static_cast<int>(c10::ScalarType::NumOptions) || !element_of(type)) return 1;
  try {
    const Fingerprint made = make(type, contiguous, {sizes, static_cast<std::size_t>(dims)}, {});
    std::memcpy(fingerprint, &made, sizeof made);
  } catch (...) {
    return 1;  // no C program could catch it
  }
  return 0;
}
