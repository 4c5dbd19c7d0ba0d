#pragma once

#include "input.hpp"

namespace fuzz {

/// Changes `input` in a few places.
///
/// As a disk or a crash would (`honest`), so that checksums tell; or as an attacker would, who repairs them
/// and the sizes in the manifest. `folder` is for files on the way.
void mutate(Input& input, Random& random, bool honest, const std::string& folder);

}  // namespace fuzz
