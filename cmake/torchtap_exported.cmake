# torchtap::exported: hooks in packages that AOTInductor compiled (docs/guides/exported.md). Needs a LibTorch that can
# load them, 2.6 or newer; elsewhere it is left out.
find_path(TORCHTAP_AOTI_INCLUDE_DIR torch/csrc/inductor/aoti_package/model_package_loader.h
          HINTS ${TORCH_INCLUDE_DIRS})
mark_as_advanced(TORCHTAP_AOTI_INCLUDE_DIR)
if(NOT TORCHTAP_AOTI_INCLUDE_DIR)
  message(STATUS "torchtap::exported is left out: this LibTorch cannot load AOTInductor packages, 2.6 and newer can")
  return()
endif()

# The operators alone, which tapped packages need in C++ and in Python. Links LibTorch and nothing of torchtap.
add_library(torchtap_taps SHARED "${PROJECT_SOURCE_DIR}/exported/detail/operators.cpp")
add_library(torchtap::taps ALIAS torchtap_taps)
target_include_directories(torchtap_taps PRIVATE "${TORCHTAP_INCLUDE_DIR}")
target_compile_features(torchtap_taps PRIVATE cxx_std_${TORCHTAP_CXX_STANDARD})
target_link_libraries(torchtap_taps PRIVATE torch)
torchtap_component_library(torchtap_taps taps)

torchtap_component(exported DIRECTORY exported EXCLUDE "/operators.cpp$" SUGGESTS "python3-torchtap, python3-torch, python3-setuptools, g++"
                   DESCRIPTION "records models that AOTInductor compiled, and has the operators of torchtap.export, which compiles them in Python")
target_link_libraries(torchtap_exported PRIVATE torchtap_taps)
list(APPEND TORCHTAP_COMPONENT_exported_TARGETS torchtap_taps)
