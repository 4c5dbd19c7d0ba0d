# Debian packages: libtorchtap0.1, libtorchtap-dev and torchtap-tools; libtorchtap-distributed0.1 and -dev;
# libtorchtap-explorer0.1 and -dev. `cmake --workflow --preset deb` makes them, scripts/check-debs tests them.
set(so_version "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME torchtap)
set(CPACK_PACKAGE_VENDOR "torchtap")
set(CPACK_PACKAGE_CONTACT "the torchtap authors")  # set by distributors: cpack -D CPACK_PACKAGE_CONTACT="Name <mail>"
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL library dev)
if(TORCHTAP_BUILD_TOOLS)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()

if(TORCHTAP_BUILD_DISTRIBUTED)
  list(APPEND CPACK_COMPONENTS_ALL distributed distributed-dev)
endif()
if(TORCHTAP_BUILD_EXPLORER)
  list(APPEND CPACK_COMPONENTS_ALL explorer explorer-dev)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(this_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME "libtorchtap${so_version}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The shared libraries that programs built with torchtap load.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libtorchtap-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libtorchtap${so_version} ${this_version}, libtorch-dev, librange-v3-dev, libcereal-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, and the package that find_package(torchtap) finds in CMake.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME torchtap-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libtorchtap${so_version} ${this_version}")
if(TORCHTAP_BUILD_EXPLORER)
  string(APPEND CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS ", libtorchtap-explorer${so_version} ${this_version}")
endif()
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS graphviz)  # pictures of traces
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "The torchtap command: records and traces TorchScript models and unchanged programs, and shows, compares, merges and
converts recordings.")

set(CPACK_DEBIAN_DISTRIBUTED_PACKAGE_NAME "libtorchtap-distributed${so_version}")
set(CPACK_DEBIAN_DISTRIBUTED_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DISTRIBUTED_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DISTRIBUTED_PACKAGE_DEPENDS "libtorchtap${so_version} ${this_version}")
set(CPACK_COMPONENT_DISTRIBUTED_DESCRIPTION "Merges what many processes recorded: the shared library of torchtap::distributed.")

set(CPACK_DEBIAN_DISTRIBUTED-DEV_PACKAGE_NAME libtorchtap-distributed-dev)
set(CPACK_DEBIAN_DISTRIBUTED-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DISTRIBUTED-DEV_PACKAGE_DEPENDS
    "libtorchtap-distributed${so_version} ${this_version}, libtorchtap-dev ${this_version}")
set(CPACK_COMPONENT_DISTRIBUTED-DEV_DESCRIPTION "Headers of torchtap::distributed, which find_package(torchtap COMPONENTS distributed) finds.")

set(CPACK_DEBIAN_EXPLORER_PACKAGE_NAME "libtorchtap-explorer${so_version}")
set(CPACK_DEBIAN_EXPLORER_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_EXPLORER_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_EXPLORER_DESCRIPTION "Shows models as they train in the browser: the shared library of torchtap::explorer.")

set(CPACK_DEBIAN_EXPLORER-DEV_PACKAGE_NAME libtorchtap-explorer-dev)
set(CPACK_DEBIAN_EXPLORER-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_EXPLORER-DEV_PACKAGE_DEPENDS
    "libtorchtap-explorer${so_version} ${this_version}, libtorchtap-dev ${this_version}")
set(CPACK_COMPONENT_EXPLORER-DEV_DESCRIPTION "Headers of torchtap::explorer, which find_package(torchtap COMPONENTS explorer) finds.")
# The command links libraries of the library package, on which its package depends by name.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")
include(CPack)
