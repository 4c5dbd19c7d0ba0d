# Debian packages: libtorchtap0.1, libtorchtap-dev, python3-torchtap and torchtap-tools; libtorchtap-NAME0.1 and libtorchtap-NAME-dev for each
# of TORCHTAP_LIBRARIES. `cmake --workflow --preset deb` makes them, scripts/check-debs tests them.
set(so_version "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME torchtap)
set(CPACK_PACKAGE_VENDOR "torchtap")
set(CPACK_PACKAGE_CONTACT "the torchtap authors")  # set by distributors: cpack -D CPACK_PACKAGE_CONTACT="Name <mail>"
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL library dev python)
if("tools" IN_LIST TORCHTAP_PARTS)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()

foreach(component IN LISTS TORCHTAP_LIBRARIES)
  list(APPEND CPACK_COMPONENTS_ALL ${component} ${component}-dev)
endforeach()

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
set(recommended "")  # what torchtap::torchtap links where it is installed
foreach(component IN LISTS TORCHTAP_COMPONENTS_DEFAULT)
  if(component IN_LIST TORCHTAP_LIBRARIES)
    list(APPEND recommended "libtorchtap-${component}-dev ${this_version}")
  endif()
endforeach()
list(JOIN recommended ", " CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS)
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, and the package that find_package(torchtap) finds in CMake.")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-torchtap)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3, python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-torch, libtorchtap-exported${so_version}")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION "Python's package torchtap: reads streams, records models to compare them with their ports, and taps models
for AOTInductor packages.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME torchtap-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libtorchtap${so_version} ${this_version}")
foreach(component IN LISTS TORCHTAP_tools_NEEDS TORCHTAP_tools_WANTS ITEMS json operations views)  # which the command links
  if(TARGET torchtap_${component})
    string(APPEND CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS ", libtorchtap-${component}${so_version} ${this_version}")
  endif()
endforeach()
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "The torchtap command: records and traces TorchScript models and unchanged programs, and shows, compares, merges and
converts recordings.")

foreach(component IN LISTS TORCHTAP_LIBRARIES)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME "libtorchtap-${component}${so_version}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SHLIBDEPS ON)
  set(library_needs "libtorchtap${so_version} ${this_version}")
  set(dev_needs "libtorchtap-${component}${so_version} ${this_version}, libtorchtap-dev ${this_version}")
  foreach(needed IN LISTS TORCHTAP_${component}_NEEDS)
    string(APPEND library_needs ", libtorchtap-${needed}${so_version} ${this_version}")
    string(APPEND dev_needs ", libtorchtap-${needed}-dev ${this_version}")
  endforeach()
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${library_needs}")
  if(TORCHTAP_${component}_SUGGESTS)
    set(CPACK_DEBIAN_${upper}_PACKAGE_SUGGESTS "${TORCHTAP_${component}_SUGGESTS}")
  endif()
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "torchtap::${component} ${TORCHTAP_${component}_DESCRIPTION}.")

  set(CPACK_DEBIAN_${upper}-DEV_PACKAGE_NAME libtorchtap-${component}-dev)
  set(CPACK_DEBIAN_${upper}-DEV_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_${upper}-DEV_PACKAGE_DEPENDS "${dev_needs}")
  set(CPACK_COMPONENT_${upper}-DEV_DESCRIPTION
      "Headers of torchtap::${component}, which find_package(torchtap COMPONENTS ${component}) finds.")
endforeach()
# The command links libraries of the library package, on which its package depends by name.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")
include(CPack)
