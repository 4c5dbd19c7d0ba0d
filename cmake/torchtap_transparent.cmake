# torchtap::transparent: hooks on every module of a program, by linking (docs/rationale.md).
#
#   torchtap_transparent_library   defines the forwards of LibTorch's modules, which call LibTorch's own
#   torchtap_transparent           the target to link: that library before LibTorch, and overlay/ before
#                                  LibTorch's headers
file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/transparent/*.cpp")
add_library(torchtap_transparent_library SHARED ${sources})
add_library(torchtap::transparent_library ALIAS torchtap_transparent_library)
target_link_libraries(torchtap_transparent_library PUBLIC torchtap)
# The library looks up its own definitions by their addresses.
target_link_options(torchtap_transparent_library PRIVATE "LINKER:-Bsymbolic-functions")
set_source_files_properties("${PROJECT_SOURCE_DIR}/transparent/norms.cpp" PROPERTIES COMPILE_OPTIONS -fno-strict-aliasing)
set_target_properties(torchtap_transparent_library PROPERTIES
                      OUTPUT_NAME torchtap_transparent EXPORT_NAME transparent_library
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
torchtap_options(torchtap_transparent_library)
torchtap_link_completely(torchtap_transparent_library)

add_library(torchtap_transparent INTERFACE)
add_library(torchtap::transparent ALIAS torchtap_transparent)
set_target_properties(torchtap_transparent PROPERTIES EXPORT_NAME transparent
                      EXPORT_NO_SYSTEM ON)  # -isystem would put overlay/ after LibTorch's headers
target_include_directories(torchtap_transparent INTERFACE
                           "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/transparent/overlay>"
                           "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/torchtap/transparent/overlay>")
target_link_libraries(torchtap_transparent INTERFACE torchtap torchtap_transparent_library)
# Options precede all libraries on the command line, so that the dynamic linker finds ours before LibTorch.
target_link_options(torchtap_transparent INTERFACE
  "SHELL:-Wl,--push-state,--no-as-needed $<TARGET_FILE:torchtap::transparent_library> -Wl,--pop-state")
# Holders call modules through a view, a type that no object has (see transparent/detail/holder.hpp). UBSan would report
# that, and GCC would conclude that such virtual calls never happen for types of unnamed namespaces. A view also has a
# `forward` of the name of a virtual one, which newer compilers mention at the user's type.
target_compile_options(torchtap_transparent INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr;-Wno-overloaded-virtual>"
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-devirtualize>")
