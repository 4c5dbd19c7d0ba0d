#pragma once

#include <string>
#include <vector>

/// Linking torchtap::transparent is all that a program needs; this is for those who want to ask.
namespace torchtap::transparent {

/// What cannot be seen in this program and why, one sentence each; empty where everything can. Calls a module
/// of LibTorch from within LibTorch to find out. Cheap after the first call; thread-safe.
std::vector<std::string> check();

}  // namespace torchtap::transparent
