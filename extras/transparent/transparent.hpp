#pragma once

#include <string>
#include <vector>

/// Linking torchtap::transparent is all that a program needs; this header is for checking the result.
namespace torchtap::transparent {

/// The calls that cannot be seen in this program and why, one sentence each; empty if all can. Calls a
/// LibTorch module from within LibTorch to find out. Cheap after the first call; thread-safe.
std::vector<std::string> check();

}  // namespace torchtap::transparent
