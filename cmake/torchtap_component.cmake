# torchtap_component(NAME DIRECTORY folder DESCRIPTION text SOURCES files... [DETAIL] [SUGGESTS packages]): a part of
# torchtap that can be left out. It makes the library torchtap::NAME of the folder's public headers and the sources, and adds
# NAME to TORCHTAP_COMPONENTS, of which torchtap_install.cmake installs each with an export file of its own, and
# torchtap_package.cmake makes Debian packages.
#
# DETAIL also installs the headers of the folder's detail/, for public headers that include them.
macro(torchtap_component name)
  cmake_parse_arguments(component "DETAIL" "DIRECTORY;DESCRIPTION;SUGGESTS" "SOURCES" ${ARGN})
  if(TORCHTAP_BUILD_SHARED)
    add_library(torchtap_${name} SHARED ${component_SOURCES})
  else()
    add_library(torchtap_${name} STATIC ${component_SOURCES})
  endif()
  add_library(torchtap::${name} ALIAS torchtap_${name})
  set(component_include "${TORCHTAP_INCLUDE_DIR}/torchtap/${component_DIRECTORY}")
  file(GLOB component_headers CONFIGURE_DEPENDS "${component_include}/*.hpp")
  list(APPEND TORCHTAP_COMPONENT_HEADERS ${component_headers})
  if(component_DETAIL)
    file(GLOB component_detail CONFIGURE_DEPENDS "${component_include}/detail/*.hpp")
    list(APPEND component_headers ${component_detail})
  endif()
  target_sources(torchtap_${name} PUBLIC
    FILE_SET HEADERS BASE_DIRS "${TORCHTAP_INCLUDE_DIR}" FILES ${component_headers})
  target_link_libraries(torchtap_${name} PUBLIC torchtap)
  torchtap_component_library(torchtap_${name} ${name})
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
