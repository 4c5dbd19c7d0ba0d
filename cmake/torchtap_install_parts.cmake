# Installs the libraries of the parts, each with an export file of its own, which torchtapConfig.cmake finds beside it.
set(TORCHTAP_LIBRARIES "")  # of parts; the command has none
foreach(part IN LISTS TORCHTAP_PARTS)
  get_property(targets GLOBAL PROPERTY TORCHTAP_${part}_TARGETS)
  if(NOT targets)
    continue()
  endif()
  list(APPEND TORCHTAP_LIBRARIES ${part})
  set(headers "")
  if(TORCHTAP_${part}_ROOMS OR TORCHTAP_${part}_INNER_ROOMS)
    set(headers FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT ${part}-dev)
  endif()
  install(TARGETS ${targets} EXPORT torchtap_${part}
          LIBRARY COMPONENT ${part} NAMELINK_COMPONENT ${part}-dev
          ARCHIVE COMPONENT ${part}-dev
          ${headers})
  install(EXPORT torchtap_${part} NAMESPACE torchtap:: FILE torchtap-${part}-targets.cmake
          DESTINATION "${package_dir}" COMPONENT ${part}-dev)
endforeach()
