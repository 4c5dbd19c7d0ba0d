# Headers, the library and a package file: find_package(torchtap) and torchtap::torchtap.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/torchtap")
install(TARGETS torchtap EXPORT torchtapTargets
        FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILE_SET internal DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(TORCHTAP_BUILD_TRANSPARENT)
  install(TARGETS torchtap_transparent_library torchtap_transparent EXPORT torchtapTargets)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/transparent/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/torchtap/transparent"
          FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
endif()
install(EXPORT torchtapTargets NAMESPACE torchtap:: DESTINATION "${package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/torchtapConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/torchtapConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/torchtapConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/torchtapConfig.cmake" "${PROJECT_BINARY_DIR}/torchtapConfigVersion.cmake"
        DESTINATION "${package_dir}")
