# Installs the headers, the library and a package file: find_package(torchtap) and torchtap::torchtap.
#
# Uses these components, from which torchtap_package.cmake makes packages: library, dev and tools; distributed and
# distributed-dev; explorer and explorer-dev. torchtap::distributed and torchtap::explorer have export files of their own,
# so that the package works without them.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/torchtap")
install(TARGETS torchtap EXPORT torchtapTargets
        LIBRARY COMPONENT library NAMELINK_COMPONENT dev
        FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILE_SET internal DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(TORCHTAP_BUILD_TRANSPARENT)
  install(TARGETS torchtap_transparent_library torchtap_transparent EXPORT torchtapTargets
          LIBRARY COMPONENT library NAMELINK_COMPONENT dev)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/transparent/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/torchtap/transparent"
          FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
endif()
if(TORCHTAP_BUILD_DISTRIBUTED)
  install(TARGETS torchtap_distributed EXPORT torchtapDistributedTargets
          LIBRARY COMPONENT distributed NAMELINK_COMPONENT distributed-dev
          ARCHIVE COMPONENT distributed-dev
          FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT distributed-dev
          FILE_SET internal DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT distributed-dev)
  install(EXPORT torchtapDistributedTargets NAMESPACE torchtap:: DESTINATION "${package_dir}" COMPONENT distributed-dev)
endif()
if(TORCHTAP_BUILD_EXPLORER)
  install(TARGETS torchtap_explorer EXPORT torchtapExplorerTargets
          LIBRARY COMPONENT explorer NAMELINK_COMPONENT explorer-dev
          ARCHIVE COMPONENT explorer-dev
          FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT explorer-dev)
  install(EXPORT torchtapExplorerTargets NAMESPACE torchtap:: DESTINATION "${package_dir}" COMPONENT explorer-dev)
endif()
install(EXPORT torchtapTargets NAMESPACE torchtap:: DESTINATION "${package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/torchtapConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/torchtapConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/torchtapConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/torchtapConfig.cmake" "${PROJECT_BINARY_DIR}/torchtapConfigVersion.cmake"
        DESTINATION "${package_dir}")

if(PROJECT_IS_TOP_LEVEL)
  include(torchtap_package)
endif()
