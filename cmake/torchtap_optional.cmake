# Optional dependencies. TORCHTAP_WITH_NAME defaults to ON if CMake finds NAME; if it is ON and NAME is missing,
# configuring fails. No header mentions them, so programs that use torchtap do not need them to compile.

function(torchtap_optional name found package purpose)
  option(TORCHTAP_WITH_${name} "${purpose}" ${found})
  if(TORCHTAP_WITH_${name} AND NOT found)
    message(FATAL_ERROR "TORCHTAP_WITH_${name} is ON, but CMake did not find it: install it (Debian: ${package}), or set "
                        "TORCHTAP_WITH_${name}=OFF.")
  endif()
endfunction()

# Reads samples on the CPU in one pass.
find_package(hwy QUIET)
if(TARGET hwy::hwy)
  set(found ON)
else()
  set(found OFF)
endif()
torchtap_optional(HIGHWAY ${found} libhwy-dev "Read samples on the CPU in one pass, with Highway")

# Computes checksums of .pt files three to four times as fast. Debian 12 ships no CMake package for it.
find_path(TORCHTAP_LIBDEFLATE_INCLUDE_DIR libdeflate.h)
find_library(TORCHTAP_LIBDEFLATE_LIBRARY deflate)
mark_as_advanced(TORCHTAP_LIBDEFLATE_INCLUDE_DIR TORCHTAP_LIBDEFLATE_LIBRARY)
if(TORCHTAP_LIBDEFLATE_INCLUDE_DIR AND TORCHTAP_LIBDEFLATE_LIBRARY)
  set(found ON)
else()
  set(found OFF)
endif()
torchtap_optional(LIBDEFLATE ${found} libdeflate-dev "Compute checksums with libdeflate")

# at::parallel_for is a template: without OpenMP it is a plain loop. ThreadSanitizer does not see OpenMP's barriers.
find_package(OpenMP QUIET COMPONENTS CXX)
if(OpenMP_CXX_FOUND AND NOT TORCHTAP_SANITIZE MATCHES thread)
  set(found ON)
else()
  set(found OFF)
endif()
torchtap_optional(OPENMP ${found} "g++ or libomp-dev" "Read large samples with LibTorch's threads")
message(STATUS "torchtap: Highway ${TORCHTAP_WITH_HIGHWAY}, libdeflate ${TORCHTAP_WITH_LIBDEFLATE}, OpenMP ${TORCHTAP_WITH_OPENMP}")

# LibTorch's own line names a file that an earlier search may have found elsewhere.
get_target_property(configurations torch IMPORTED_CONFIGURATIONS)
list(GET configurations 0 configuration)
get_target_property(location torch IMPORTED_LOCATION_${configuration})
cmake_path(GET location PARENT_PATH location)
message(STATUS "torchtap: LibTorch ${Torch_VERSION} in ${location}")
