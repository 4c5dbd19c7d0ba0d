#pragma once

#include "input.hpp"

namespace fuzz {

/// Changes `input` in a few places.
///
/// Damages it like a disk or a crash (`honest`), which checksums detect; or like an attacker, who repairs
/// checksums and the sizes in the manifest. `folder` is for temporary files.
void mutate(Input& input, Random& random, bool honest, const std::string& folder);

}  // namespace fuzz
