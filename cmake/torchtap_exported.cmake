# torchtap::exported: hooks in packages that AOTInductor compiled (docs/guides/exported.md). Needs a LibTorch that can
# load them, 2.6 or newer; elsewhere it is left out.
find_path(TORCHTAP_AOTI_INCLUDE_DIR torch/csrc/inductor/aoti_package/model_package_loader.h
          HINTS ${TORCH_INCLUDE_DIRS})
mark_as_advanced(TORCHTAP_AOTI_INCLUDE_DIR)
if(NOT TORCHTAP_AOTI_INCLUDE_DIR)
  message(STATUS "torchtap::exported is left out: this LibTorch cannot load AOTInductor packages, 2.6 and newer can")
  return()
endif()

set(TORCHTAP_PYTHON_DIR "${CMAKE_INSTALL_DATADIR}/torchtap" CACHE STRING
    "Where torchtap_export.py is installed, below the prefix or absolute")

# The operators alone, which tapped packages need in C++ and in Python. Links LibTorch and nothing of torchtap.
add_library(torchtap_taps SHARED "${PROJECT_SOURCE_DIR}/exported/detail/operators.cpp")
add_library(torchtap::taps ALIAS torchtap_taps)
target_include_directories(torchtap_taps PRIVATE "${TORCHTAP_INCLUDE_DIR}")
target_compile_features(torchtap_taps PRIVATE cxx_std_${TORCHTAP_CXX_STANDARD})
target_link_libraries(torchtap_taps PRIVATE torch)
set_target_properties(torchtap_taps PROPERTIES EXPORT_NAME taps
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
torchtap_options(torchtap_taps)
torchtap_hide_symbols(torchtap_taps)
torchtap_link_completely(torchtap_taps)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/exported/*.cpp")
list(FILTER sources EXCLUDE REGEX "/exported/detail/operators.cpp$")
add_library(torchtap_exported ${sources})
add_library(torchtap::exported ALIAS torchtap_exported)
file(GLOB TORCHTAP_EXPORTED_HEADERS CONFIGURE_DEPENDS "${TORCHTAP_INCLUDE_DIR}/torchtap/exported/*.hpp")
target_sources(torchtap_exported PUBLIC
  FILE_SET HEADERS BASE_DIRS "${TORCHTAP_INCLUDE_DIR}" FILES ${TORCHTAP_EXPORTED_HEADERS})
target_link_libraries(torchtap_exported PUBLIC torchtap PRIVATE torchtap_taps)
set_target_properties(torchtap_exported PROPERTIES EXPORT_NAME exported POSITION_INDEPENDENT_CODE ON
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
torchtap_options(torchtap_exported)
torchtap_hide_symbols(torchtap_exported)
if(TORCHTAP_BUILD_SHARED)
  torchtap_link_completely(torchtap_exported)
endif()
