#pragma once

/// The version of torchtap's headers. CMakeLists.txt reads it here: this file is the only place that states
/// it.

/// The first of the three numbers of the version.
#define TORCHTAP_VERSION_MAJOR 0
/// The second one.
#define TORCHTAP_VERSION_MINOR 1
/// The third one.
#define TORCHTAP_VERSION_PATCH 0

/// One number to compare with: 10203 is version 1.2.3.
#define TORCHTAP_VERSION_NUMBER \
  (TORCHTAP_VERSION_MAJOR * 10000 + TORCHTAP_VERSION_MINOR * 100 + TORCHTAP_VERSION_PATCH)

/// The version as a string literal: "1.2.3".
#define TORCHTAP_VERSION                          \
  TORCHTAP_VERSION_STRING(TORCHTAP_VERSION_MAJOR) \
  "." TORCHTAP_VERSION_STRING(TORCHTAP_VERSION_MINOR) "." TORCHTAP_VERSION_STRING(TORCHTAP_VERSION_PATCH)

// Two steps, so that the argument is replaced by its value before it becomes a string.
#define TORCHTAP_VERSION_STRING(number) TORCHTAP_VERSION_STRING_(number)
#define TORCHTAP_VERSION_STRING_(number) #number
