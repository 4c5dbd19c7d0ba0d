# torchtap::compare: the first place where two programs differ (docs/guides/comparing-a-port.md).
torchtap_component(compare DIRECTORY views/compare NEEDS views SUGGESTS python3-torchtap
                   DESCRIPTION "finds the first place where two programs differ")
# The loops are compiled for several processors, by Highway, and their speed depends on where they begin.
set(blocks "${PROJECT_SOURCE_DIR}/views/compare/detail/blocks.cpp")
set_source_files_properties("${blocks}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
                            COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O3;-falign-functions=64;-falign-loops=64>")
if(TORCHTAP_WITH_HIGHWAY)
  set_source_files_properties("${blocks}" PROPERTIES COMPILE_DEFINITIONS "TORCHTAP_HAVE_HIGHWAY=1;HWY_DISABLED_TARGETS=HWY_SSSE3")
  if(TORCHTAP_BUILD_SHARED)
    target_link_libraries(torchtap_compare PRIVATE "$<TARGET_LINKER_FILE:hwy::hwy>")  # by path, so that the package names no target
  else()
    target_link_libraries(torchtap_compare PRIVATE hwy::hwy)
  endif()
endif()
set(fingerprint "${PROJECT_SOURCE_DIR}/views/compare/fingerprint.cpp")
set_source_files_properties("${fingerprint}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
if(TORCHTAP_WITH_OPENMP)
  set_source_files_properties("${fingerprint}" PROPERTIES COMPILE_OPTIONS "${OpenMP_CXX_FLAGS}")
  target_link_libraries(torchtap_compare PRIVATE ${OpenMP_CXX_LIBRARIES})
endif()
