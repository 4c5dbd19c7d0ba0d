# Settings that all of torchtap's own targets share. None of them reaches a consumer.

# The newer of C++17 and the standard that the headers of the installed LibTorch need.
function(torchtap_standard result)
  get_target_property(standard torch CXX_STANDARD)
  if(NOT standard OR standard LESS 17)
    set(standard 17)
  endif()
  set(${result} ${standard} PARENT_SCOPE)
endfunction()

# Warnings, -Werror and sanitizers.
function(torchtap_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unknown-pragmas $<$<BOOL:${TORCHTAP_WERROR}>:-Werror>)
  # GCC 16 takes a move of LibTorch's SmallVector for a read of memory that was never written.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 16)
    target_compile_options(${target} PRIVATE $<$<BOOL:${TORCHTAP_WERROR}>:-Wno-error=maybe-uninitialized>)
  endif()
  if(TORCHTAP_SANITIZE)
    # LibTorch hides the typeinfo of some of its classes, which checks of vptr would look up.
    target_compile_options(${target} PRIVATE -fsanitize=${TORCHTAP_SANITIZE} -fno-sanitize=vptr -fno-omit-frame-pointer
                           -fno-sanitize-recover=undefined)
    target_link_options(${target} PRIVATE -fsanitize=${TORCHTAP_SANITIZE})
  endif()
endfunction()

# The library exports only what TORCHTAP_API marks.
function(torchtap_hide_symbols target)
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# What another of our libraries does not export is an error of the linker, not of the program that loads both.
function(torchtap_link_completely target)
  if(NOT TORCHTAP_SANITIZE AND UNIX AND NOT APPLE)
    target_link_options(${target} PRIVATE "LINKER:--no-undefined")
  endif()
endfunction()

# torchtap_torch_headers(GROUP TARGET...): the targets of a group share a precompiled torch/torch.h, which costs 10 s a file. They
# have the same standard, optimisation and definitions that LibTorch's headers ask for, and all or none of them link
# torchtap::transparent. Groups called test… have Boost.Test, too.
function(torchtap_torch_headers group)
  foreach(target IN LISTS ARGN)
    get_property(first GLOBAL PROPERTY TORCHTAP_TORCH_HEADERS_${group})
    if(first)
      target_precompile_headers(${target} REUSE_FROM ${first})
    else()
      set_property(GLOBAL PROPERTY TORCHTAP_TORCH_HEADERS_${group} ${target})
      target_precompile_headers(${target} PRIVATE <torch/torch.h>)
      if(group MATCHES "^test")
        target_precompile_headers(${target} PRIVATE <boost/test/unit_test.hpp>)
      endif()
    endif()
  endforeach()
endfunction()

# Compiles the files of each room as one, which takes a quarter of the time: most of it goes to LibTorch's
# headers. For packages, CI and the demo; for daily work single files are faster.
function(torchtap_unity target)
  if(NOT TORCHTAP_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE group)
    string(REGEX REPLACE "/((detail|extend)/)?[^/]*$" "" group "${group}")
    string(MAKE_C_IDENTIFIER "${group}" group)
    set_property(SOURCE "${source}" TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
