#pragma once

namespace torchtap::transparent {

/// Notes that the program was compiled so that batch and instance normalisation call into
/// libtorchtap_transparent.
bool note_norms() noexcept;
inline const bool norms_noted = note_norms();

}  // namespace torchtap::transparent
