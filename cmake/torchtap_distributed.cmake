# torchtap::distributed: merges what many ranks recorded, over c10d (docs/guides/many-ranks.md). Its headers name
# c10d's ProcessGroup, Backend and Store. Only from_environment makes a group, of Gloo where libgloo-dev is installed at
# build time; programs that use torchtap do not need it.
find_path(TORCHTAP_GLOO_INCLUDE_DIR gloo/transport/device.h)
mark_as_advanced(TORCHTAP_GLOO_INCLUDE_DIR)
if(TORCHTAP_GLOO_INCLUDE_DIR)
  set(found ON)
else()
  set(found OFF)
endif()
torchtap_optional(GLOO ${found} libgloo-dev "Connect ranks with Gloo in distributed::from_environment")

file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/distributed/*.cpp")
add_library(torchtap_distributed ${sources})
add_library(torchtap::distributed ALIAS torchtap_distributed)
file(GLOB TORCHTAP_DISTRIBUTED_HEADERS CONFIGURE_DEPENDS "${TORCHTAP_INCLUDE_DIR}/torchtap/distributed/*.hpp")
file(GLOB internal CONFIGURE_DEPENDS "${TORCHTAP_INCLUDE_DIR}/torchtap/distributed/detail/*.hpp")
target_sources(torchtap_distributed PUBLIC
  FILE_SET HEADERS BASE_DIRS "${TORCHTAP_INCLUDE_DIR}" FILES ${TORCHTAP_DISTRIBUTED_HEADERS}
  FILE_SET internal TYPE HEADERS BASE_DIRS "${TORCHTAP_INCLUDE_DIR}" FILES ${internal})
target_link_libraries(torchtap_distributed PUBLIC torchtap)
set_target_properties(torchtap_distributed PROPERTIES EXPORT_NAME distributed POSITION_INDEPENDENT_CODE ON
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
torchtap_options(torchtap_distributed)
torchtap_hide_symbols(torchtap_distributed)
if(TORCHTAP_BUILD_SHARED)
  torchtap_link_completely(torchtap_distributed)
endif()
if(TORCHTAP_WITH_GLOO)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/distributed/gloo.cpp" PROPERTIES
                              COMPILE_DEFINITIONS TORCHTAP_HAVE_GLOO=1)
  target_include_directories(torchtap_distributed SYSTEM PRIVATE "${TORCHTAP_GLOO_INCLUDE_DIR}")
endif()
