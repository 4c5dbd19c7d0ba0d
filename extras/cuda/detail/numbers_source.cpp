// What the code of all kernels has in common, in CUDA C++ that NVRTC compiles for each dtype of samples.
#include <torchtap/cuda/detail/source.hpp>

namespace torchtap::cuda::detail {

// ELEMENT is the type of a sample's elements; HALF and BFLOAT16 say what the bits of an unsigned short are.
const char kNumbers[] = R"cuda(
typedef long long Int;
typedef unsigned long long Bits;

#ifndef KERNEL  // a test compiles this for the host
#define KERNEL extern "C" __global__ void
#define BLOCK_MEMORY extern __shared__ unsigned block[]
#endif

__device__ inline double number(ELEMENT x) {
#if defined(HALF)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
#elif defined(BFLOAT16)
  return __int_as_float(static_cast<int>(x) << 16);
#else
  return static_cast<double>(x);
#endif
}

__device__ inline bool is_finite(double x) {
  return fabs(x) <= 1.7976931348623157e308;
}

__device__ inline double power_of_two(Int e) {
  return __longlong_as_double((e + 1023) << 52);
}

struct BinOf {
  double low, high, per_bin;
  Int bins;
  const double* edges;  // [bins + 1]

  // Bins, then underflow, overflow and NaN.
  __device__ Int operator()(double v) const {
    if (v != v) return bins + 2;
    if (v < low) return bins;
    if (v > high) return bins + 1;
    Int bin = static_cast<Int>((v - low) * per_bin);
    bin = bin < 0 ? 0 : bin >= bins ? bins - 1 : bin;
    while (bin > 0 && v < edges[bin]) --bin;
    while (bin + 1 < bins && v >= edges[bin + 1]) ++bin;
    return bin;
  }
};

// Slots of torchtap's BitBins.
struct BitsOf {
  int mantissa_bits;
  double scale;  // 2^(126 + mantissa_bits)

  __device__ Int operator()(double v) const {
    const Int rebias = 1023 - 127, infinity = static_cast<Int>(0x7FF) << 52;
    const Int negative = static_cast<Int>(256) << mantissa_bits;
    const Int last = (static_cast<Int>(255) << mantissa_bits) - 1;
    const Int bits = __double_as_longlong(v), magnitude = bits & 0x7FFFFFFFFFFFFFFF;
    if (magnitude == 0) return 2 * negative + 1;
    if (magnitude > infinity) return 2 * negative;
    Int slot = last + 1;
    if (magnitude < (rebias + 1) << 52) {
      slot = static_cast<Int>(fabs(v) * scale);
    } else if (magnitude != infinity) {
      slot = (magnitude >> (52 - mantissa_bits)) - (rebias << mantissa_bits);
      slot = slot < last ? slot : last;
    }
    return bits < 0 ? slot + negative : slot;
  }
};
)cuda";

}  // namespace torchtap::cuda::detail
