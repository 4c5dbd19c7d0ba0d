# Without a build type CMake compiles without optimisation, which makes reductions many times slower: then it is Release, also in a
# project that adds torchtap as a folder of its own, and for torchtap alone. -O in CMAKE_CXX_FLAGS, or a name such as None, says
# otherwise.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND NOT CMAKE_CXX_FLAGS MATCHES "(^| )-O")
  set(CMAKE_BUILD_TYPE Release)
  message(STATUS "torchtap: no CMAKE_BUILD_TYPE was given, so torchtap is compiled as Release")
endif()
