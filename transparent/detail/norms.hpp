#pragma once

namespace torchtap::transparent::detail {

/// Notes that the program was compiled so that batch and instance normalisation call into
/// libtorchtap_transparent. True.
bool note_norms() noexcept;

}  // namespace torchtap::transparent::detail
