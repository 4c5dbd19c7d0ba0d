#include <torchtap/version.hpp>

const char* torchtap_version() {
  return TORCHTAP_VERSION;
}
