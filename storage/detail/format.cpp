// The check of format numbers.
#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/detail/format.hpp>
#include <torchtap/version.hpp>

namespace torchtap::storage::detail {

void check_format(const InputFile& file, const char* what, std::int64_t found, std::int64_t known) {
  if (found < 1) file.bad(c10::str("it has ", what, " ", found, ", but the first is 1; it is damaged"));
  if (found <= known) return;
  throw NewerFormat({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                    c10::str(file.call(), ": cannot read \"", file.path(), "\": it has ", what, " ", found,
                             ", and this torchtap (", library_version(), ") reads ", what, "s 1 to ", known,
                             ": a newer torchtap wrote it; update torchtap."));
}

const char* library_version() noexcept {
  return TORCHTAP_VERSION;
}

}  // namespace torchtap::storage::detail
