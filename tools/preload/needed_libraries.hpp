#pragma once

namespace torchtap::tools::preload {

/// Whether both are one file, or copies of one: they have one name, as far as ".so", and one size.
bool is_same_library(const char* file, const char* other);

/// What the process had as LD_LIBRARY_PATH when it began, as the loader knows it; null if nothing.
void remember_library_path(const char* folders);

/// Whether opening `file` by `dlopen`, as the function at `caller` does, would load `library`, which the
/// process does not have: by itself or as a library that it needs, directly or not. Looks where the dynamic
/// loader would look, in its order. Not for several threads at once.
bool brings_library(const char* file, const void* caller, const char* library);

}  // namespace torchtap::tools::preload
