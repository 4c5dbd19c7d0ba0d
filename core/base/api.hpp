#pragma once

/// Marks the symbols that the library exports. Everything else in it is hidden.
#if defined(_WIN32)
#define TORCHTAP_API
#else
#define TORCHTAP_API [[gnu::visibility("default")]]
#endif
