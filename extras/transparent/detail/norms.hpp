#pragma once

// Marks programs that were compiled with the headers in overlay/.

namespace torchtap::transparent::detail {

/// Notes that the program was compiled with overlay/, so that batch and instance normalisation call into
/// libtorchtap_transparent. Returns true.
bool note_norms() noexcept;

}  // namespace torchtap::transparent::detail
