# Configures tests/parent: torchtap leaves the libraries of a parent project alone, follows its BUILD_SHARED_LIBS, and
# refuses options that contradict each other. Headers compile under the parent's own strict warnings.
#
# usage: cmake -DTORCHTAP=FOLDER -DWORK=FOLDER -DGENERATOR=NAME -DCOMPILER=PATH -P check.cmake
function(configure name want_error)
  file(REMOVE_RECURSE "${WORK}/${name}")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/${name}" -G "${GENERATOR}"
                          "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DTORCHTAP=${TORCHTAP}" ${ARGN}
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(want_error STREQUAL "" AND NOT status EQUAL 0)
    message(FATAL_ERROR "${name}: ${output}")
  elseif(NOT want_error STREQUAL "" AND status EQUAL 0)
    message(FATAL_ERROR "${name}: configures, and should say: ${want_error}")
  elseif(NOT want_error STREQUAL "" AND NOT output MATCHES "${want_error}")
    message(FATAL_ERROR "${name}: does not say \"${want_error}\": ${output}")
  endif()
  message(STATUS "${name}: as expected")
endfunction()

configure(nothing_said "" -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY)
configure(torch_first "" -DTORCH_FIRST=ON -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY)
configure(static "" -DBUILD_SHARED_LIBS=OFF -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=STATIC_LIBRARY)
configure(shared "" -DBUILD_SHARED_LIBS=ON -DEXPECTED_theirs=SHARED_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY)
configure(static_but_torchtap "" -DBUILD_SHARED_LIBS=OFF -DTORCHTAP_BUILD_SHARED=ON
          -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY)
configure(unknown "TORCHTAP_COMPONENTS names traces: there is no such part; there are: .*, trace" -DTORCHTAP_COMPONENTS=traces)
configure(static_transparent "TORCHTAP_COMPONENTS names tools: it needs transparent: it is a shared library"
          -DTORCHTAP_COMPONENTS=tools -DTORCHTAP_BUILD_SHARED=OFF)
# What a parent project may ask for, with commas or spaces; one file of it is compiled, and no library.
set(parts "-DTORCHTAP_COMPONENTS=transparent cuda, distributed,quantization,trace,report,stream,compare,monitor,explorer")
configure(strict "" -DSTRICT=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "${parts}")
if(EXISTS "${WORK}/strict/compile_commands.json")  # which not every generator writes
  file(READ "${WORK}/strict/compile_commands.json" commands)
  string(JSON count LENGTH "${commands}")
  math(EXPR last "${count} - 1")
  foreach(i RANGE ${last})
    string(JSON file GET "${commands}" ${i} file)
    if(file MATCHES "/strict.cpp$")
      string(JSON command GET "${commands}" ${i} command)
    endif()
  endforeach()
  execute_process(COMMAND sh -c "${command}" WORKING_DIRECTORY "${WORK}/strict" RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "headers have warnings: ${output}")
  endif()
  message(STATUS "headers have no warnings")
endif()
