# The loops that read samples on the CPU at the speed of memory, reductions/fast/: a library of their own, which no program sees. They
# know numbers in memory, and no tensor. They use Highway, where it is installed, and the OpenMP that LibTorch's own thread pool
# uses. Only the kernel links them; parts call them by reductions/extend/loops.hpp and bit_bins.hpp.
set(fast "${PROJECT_SOURCE_DIR}/reductions/fast")
file(GLOB sources CONFIGURE_DEPENDS "${fast}/*.cpp")
add_library(torchtap_kernels OBJECT ${sources})
target_include_directories(torchtap_kernels PRIVATE "${TORCHTAP_INCLUDE_DIR}")
target_link_libraries(torchtap_kernels PRIVATE torch)
target_compile_features(torchtap_kernels PRIVATE cxx_std_${TORCHTAP_CXX_STANDARD})
set_target_properties(torchtap_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON)
torchtap_options(torchtap_kernels)
torchtap_hide_symbols(torchtap_kernels)
target_sources(torchtap PRIVATE $<TARGET_OBJECTS:torchtap_kernels>)
set(TORCHTAP_FIND_HIGHWAY "")
if(TORCHTAP_WITH_HIGHWAY)
  # x86 without SSE4.1 (before 2008) takes the plain loops: a sixth less to compile and to load.
  target_compile_definitions(torchtap_kernels PRIVATE TORCHTAP_HAVE_HIGHWAY=1 HWY_DISABLED_TARGETS=HWY_SSSE3)
  target_link_libraries(torchtap_kernels PRIVATE hwy::hwy)
  if(TORCHTAP_BUILD_SHARED)
    target_link_libraries(torchtap PRIVATE "$<TARGET_LINKER_FILE:hwy::hwy>")  # by path, so that the package names no target
  else()
    target_link_libraries(torchtap PRIVATE hwy::hwy)
    set(TORCHTAP_FIND_HIGHWAY "find_dependency(hwy)")  # a program has to link the dependencies of a static library
  endif()
endif()

if(TORCHTAP_WITH_OPENMP)
  set_source_files_properties("${fast}/reader.cpp" "${PROJECT_SOURCE_DIR}/reductions/detail/readable.cpp"
                              PROPERTIES COMPILE_OPTIONS "${OpenMP_CXX_FLAGS}")
  target_link_libraries(torchtap PRIVATE ${OpenMP_CXX_LIBRARIES})
endif()

# The compiler makes vectors of these loops; Debug builds keep their own level.
set_source_files_properties("${fast}/small.cpp" PROPERTIES COMPILE_OPTIONS "-ffp-contract=off;$<$<NOT:$<CONFIG:Debug>>:-O3>")
