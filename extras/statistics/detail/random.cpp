// Makes a number of a tensor's first bytes, by which generators of one seed become independent.

#include <algorithm>
#include <cstring>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/statistics/detail/random.hpp>

namespace torchtap::statistics::detail {

std::uint64_t fingerprint(const at::Tensor& rows) {
  constexpr std::int64_t kBytes = 256, kRows = 1024;  // of a row, and rows: enough to distinguish tensors
  if (!rows.is_cpu() || rows.numel() == 0) return 0;
  const base::RecordingMode quiet;
  const at::Tensor plain = rows.contiguous();
  const auto bytes = static_cast<std::int64_t>(plain.nbytes()) / plain.size(0);
  const auto* const data = static_cast<const char*>(plain.data_ptr());
  Random all(static_cast<std::uint64_t>(plain.size(0)));
  for (std::int64_t row = 0; row < plain.size(0); row += 1 + plain.size(0) / kRows) {
    for (std::int64_t at = 0; at < std::min(bytes, kBytes); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, data + row * bytes + at,
                  static_cast<std::size_t>(std::min<std::int64_t>(8, bytes - at)));
      all.mix(word);
    }
  }
  return all.next();
}

}  // namespace torchtap::statistics::detail
