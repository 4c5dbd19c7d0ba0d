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

torchtap_component(distributed DIRECTORY distributed
                   DESCRIPTION "merges what many processes recorded")
if(TORCHTAP_WITH_GLOO)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/distributed/gloo.cpp" PROPERTIES
                              COMPILE_DEFINITIONS TORCHTAP_HAVE_GLOO=1)
  target_include_directories(torchtap_distributed SYSTEM PRIVATE "${TORCHTAP_GLOO_INCLUDE_DIR}")
endif()
