# The API reference, of the comments in public headers: the target `docs`, where Doxygen is installed. A warning fails it.
find_package(Doxygen QUIET)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT DOXYGEN_FOUND OR NOT Python3_FOUND)
  return()
endif()
set(TORCHTAP_DOXYGEN_INPUT)
set(TORCHTAP_DOXYGEN_PYTHON "${Python3_EXECUTABLE}")
foreach(room IN LISTS TORCHTAP_ROOMS ITEMS transparent cuda quantization rules views/compare views/monitor views/report views/stream views/trace)
  string(APPEND TORCHTAP_DOXYGEN_INPUT " \"${PROJECT_SOURCE_DIR}/${room}\"")
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/Doxyfile.in" "${PROJECT_BINARY_DIR}/Doxyfile" @ONLY)
add_custom_target(docs COMMAND Doxygen::doxygen "${PROJECT_BINARY_DIR}/Doxyfile"
                       COMMENT "API reference in ${PROJECT_BINARY_DIR}/docs/html" VERBATIM)
