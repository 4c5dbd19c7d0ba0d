# torchtap_component(NAME DIRECTORY folder DESCRIPTION text [EXCLUDE regex] [SUGGESTS packages]): a part of torchtap that can
# be left out. It makes the library torchtap::NAME of the sources in the folder and its public headers, and adds NAME to
# TORCHTAP_COMPONENTS, of which torchtap_install.cmake installs each with an export file of its own, and
# torchtap_package.cmake makes Debian packages.
macro(torchtap_component name)
  cmake_parse_arguments(component "" "DIRECTORY;DESCRIPTION;EXCLUDE;SUGGESTS" "" ${ARGN})
  file(GLOB_RECURSE component_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${component_DIRECTORY}/*.cpp")
  if(component_EXCLUDE)
    list(FILTER component_sources EXCLUDE REGEX "${component_EXCLUDE}")
  endif()
  if(TORCHTAP_BUILD_SHARED)
    add_library(torchtap_${name} SHARED ${component_sources})
  else()
    add_library(torchtap_${name} STATIC ${component_sources})
  endif()
  add_library(torchtap::${name} ALIAS torchtap_${name})
  torchtap_headers_of("${component_DIRECTORY}" component_headers component_detail)
  target_sources(torchtap_${name} PUBLIC
    FILE_SET HEADERS BASE_DIRS "${TORCHTAP_INCLUDE_DIR}" FILES ${component_headers} ${component_detail})
  target_link_libraries(torchtap_${name} PUBLIC torchtap)
  torchtap_component_library(torchtap_${name} ${name})
  torchtap_unity(torchtap_${name})
  list(APPEND TORCHTAP_COMPONENTS ${name})
  set(TORCHTAP_COMPONENT_${name}_TARGETS torchtap_${name})
  set(TORCHTAP_COMPONENT_${name}_DESCRIPTION "${component_DESCRIPTION}")
  set(TORCHTAP_COMPONENT_${name}_SUGGESTS "${component_SUGGESTS}")
endmacro()

# What a library of a component has in common with the others.
function(torchtap_component_library target export_name)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${export_name} POSITION_INDEPENDENT_CODE ON
                        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  torchtap_options(${target})
  torchtap_hide_symbols(${target})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    torchtap_link_completely(${target})
  endif()
endfunction()
