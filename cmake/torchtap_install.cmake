# Installs the headers, the library and a package file: find_package(torchtap), torchtap::torchtap and torchtap::kernel.
#
# Uses these components, from which torchtap_package.cmake makes packages: library, dev, python and tools; NAME and NAME-dev for
# each of TORCHTAP_LIBRARIES. Those have export files of their own, so that the package works without them.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/torchtap")
install(TARGETS torchtap EXPORT torchtapTargets
        LIBRARY COMPONENT library NAMELINK_COMPONENT dev
        FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILE_SET internal DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        ${TORCHTAP_INSTALL_MISSING})
install(TARGETS torchtap_torchtap EXPORT torchtapTargets)
include(torchtap_install_parts)
if(NOT SKBUILD)  # a wheel gets them itself
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/extras/python/torchtap" "${PROJECT_SOURCE_DIR}/extras/python/torchtap_compare"
          DESTINATION "${TORCHTAP_PYTHON_DIR}" COMPONENT python
          FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed")
endif()
install(EXPORT torchtapTargets NAMESPACE torchtap:: DESTINATION "${package_dir}")
torchtap_in_order(known ${TORCHTAP_KNOWN_PARTS})
list(REMOVE_ITEM known tools)
list(JOIN known " " TORCHTAP_KNOWN_SPACED)
list(JOIN TORCHTAP_COMPONENTS_DEFAULT " " TORCHTAP_DEFAULT_SPACED)
set(TORCHTAP_LACKING "")
foreach(part IN LISTS known)
  torchtap_lack(lack ${part})
  if(NOT lack STREQUAL "")
    string(APPEND TORCHTAP_LACKING "set(torchtap_${part}_lacks \"${lack}\")\n")
  endif()
endforeach()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/torchtapConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/torchtapConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/torchtapConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/torchtapConfig.cmake" "${PROJECT_BINARY_DIR}/torchtapConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/torchtap_cuda_toolkit.cmake"
        DESTINATION "${package_dir}")

if(PROJECT_IS_TOP_LEVEL)
  include(torchtap_package)
endif()
