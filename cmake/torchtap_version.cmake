# Sets torchtap_version: include/torchtap/version.hpp states it, for the compiler and for CMake.
get_filename_component(header "${CMAKE_CURRENT_LIST_DIR}/../include/torchtap/version.hpp" ABSOLUTE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
file(STRINGS "${header}" torchtap_version REGEX "TORCHTAP_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
list(TRANSFORM torchtap_version REPLACE ".* " "")
list(JOIN torchtap_version "." torchtap_version)
