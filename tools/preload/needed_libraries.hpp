#pragma once

namespace torchtap::tools::preload {

/// Whether both are one file, or copies of one: they have one name, as far as ".so", and one size.
bool is_same_library(const char* file, const char* other);

/// What the process had as LD_LIBRARY_PATH when it began, as the loader knows it; null if nothing.
void remember_library_path(const char* folders);

/// The LibTorch that opening `file` by `dlopen`, as the function at `caller` does, would load and that the
/// process does not have, by itself or as a library that it needs, directly or not: `library`, or the file of
/// another one, which is valid until the next call; null if none. Looks where the dynamic loader would look,
/// in its order. Not for several threads at once.
const char* brought_library(const char* file, const void* caller, const char* library);

}  // namespace torchtap::tools::preload
