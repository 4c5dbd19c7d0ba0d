// Stores that bypass the caches, on x86-64.
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include <torchtap/views/frames/bulk_copy.hpp>

namespace torchtap::views::frames {

#ifdef __SSE2__
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 16 * kLine;

/// Whole lines, to memory that begins with one.
void stream_lines(void* to, const void* from, std::size_t lines) noexcept {
  auto* out = static_cast<__m128i*>(to);
  const auto* in = static_cast<const __m128i*>(from);
  for (; lines != 0; --lines, in += 4, out += 4) {
    _mm_prefetch(reinterpret_cast<const char*>(in) + kAhead, _MM_HINT_NTA);  // beyond the end it does nothing
    const __m128i parts[] = {_mm_loadu_si128(in), _mm_loadu_si128(in + 1), _mm_loadu_si128(in + 2),
                             _mm_loadu_si128(in + 3)};
    for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, parts[i]);
  }
  _mm_sfence();
}

}  // namespace
#endif

void bulk_copy(void* to, const void* from, std::size_t bytes) noexcept {
#ifdef __SSE2__
  // Smaller ones are copied to be read soon, from the caches.
  constexpr std::size_t kLeast = std::size_t{2} << 20;
  if (bytes >= kLeast && reinterpret_cast<std::uintptr_t>(to) % kLine == 0) {
    const std::size_t whole = bytes / kLine * kLine;
    stream_lines(to, from, whole / kLine);
    to = static_cast<char*>(to) + whole;
    from = static_cast<const char*>(from) + whole;
    bytes -= whole;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace torchtap::views::frames
