// Refuses files whose format number is unknown.
#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/storage/detail/format.hpp>
#include <torchtap/version.hpp>

namespace torchtap::storage::detail {

void check_format(const base::InputFile& file, std::int64_t found, std::int64_t known) {
  const std::string why = base::unreadable_format(found, known);
  if (why.empty()) return;
  if (found < 1) file.bad(why);
  throw NewerFormat({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                    c10::str(file.call(), ": cannot read \"", file.path(), "\": ", why, "."));
}

const char* library_version() noexcept {
  return TORCHTAP_VERSION;
}

}  // namespace torchtap::storage::detail
