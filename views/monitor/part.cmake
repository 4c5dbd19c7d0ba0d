# torchtap::monitor: a model watched while it runs (views/monitor/README.md).
set(lacks "")
find_file(TORCHTAP_XXHASH xxhash.h)
mark_as_advanced(TORCHTAP_XXHASH)
if(NOT TORCHTAP_XXHASH)
  set(lacks "it needs xxHash's header (Debian: libxxhash-dev)")
endif()
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  set(lacks "it needs Linux on a little-endian machine")
endif()
torchtap_part(monitor NEEDS views statistics WANTS torchscript ROOMS views/monitor LACKS "${lacks}"
              DESCRIPTION "watches a model while it runs: rules, drift, and the inputs that led to an alarm")
