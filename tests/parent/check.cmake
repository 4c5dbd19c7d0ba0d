# Configures tests/parent: torchtap leaves the libraries of a parent project alone, follows its BUILD_SHARED_LIBS, and
# refuses options that contradict each other. Without a build type torchtap alone is optimised. Headers compile under the parent's own strict warnings.
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

# Sets `result` to the command that compiles a file of a configured project; to nothing where the generator writes none.
function(command_of result name file_regex)
  set(${result} "" PARENT_SCOPE)
  if(NOT EXISTS "${WORK}/${name}/compile_commands.json")
    return()
  endif()
  file(READ "${WORK}/${name}/compile_commands.json" commands)
  string(JSON count LENGTH "${commands}")
  math(EXPR last "${count} - 1")
  foreach(i RANGE ${last})
    string(JSON file GET "${commands}" ${i} file)
    if(file MATCHES "${file_regex}")
      string(JSON command GET "${commands}" ${i} command)
      set(${result} "${command}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${name} compiles no ${file_regex}")
endfunction()

function(expect_optimised name ours theirs)
  command_of(our_command ${name} "core[/_]base")
  command_of(their_command ${name} "/theirs.cpp$")
  foreach(whose IN ITEMS our their)
    string(REGEX MATCH " -O[^ ]*" found "${${whose}_command}")
    set(${whose} "${found}")
  endforeach()
  if(our_command AND NOT "${our}, ${their}" STREQUAL "${ours}, ${theirs}")
    message(FATAL_ERROR "${name}: torchtap is compiled with \"${our}\" and the parent with \"${their}\", not \"${ours}\" and \"${theirs}\"")
  endif()
endfunction()

configure(nothing_said "" -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
expect_optimised(nothing_said " -O3" "")
configure(torch_first "" -DTORCH_FIRST=ON -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY)
configure(static "" -DBUILD_SHARED_LIBS=OFF -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=STATIC_LIBRARY)
configure(debug "" -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
          -DCMAKE_BUILD_TYPE=Debug)
expect_optimised(debug "" "")
configure(their_flags "" -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
          -DCMAKE_CXX_FLAGS=-Og)
expect_optimised(their_flags " -Og" " -Og")
configure(shared "" -DBUILD_SHARED_LIBS=ON -DEXPECTED_theirs=SHARED_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY)
configure(static_but_torchtap "" -DBUILD_SHARED_LIBS=OFF -DTORCHTAP_BUILD_SHARED=ON
          -DEXPECTED_theirs=STATIC_LIBRARY -DEXPECTED_torchtap=SHARED_LIBRARY)
configure(unknown "TORCHTAP_COMPONENTS names traces: there is no such part; there are: .*, trace" -DTORCHTAP_COMPONENTS=traces)
configure(static_transparent "TORCHTAP_COMPONENTS names tools: it needs transparent: it is a shared library"
          -DTORCHTAP_COMPONENTS=tools -DTORCHTAP_BUILD_SHARED=OFF)
# What a parent project may ask for, with commas or spaces; one file of it is compiled, and no library.
set(parts "-DTORCHTAP_COMPONENTS=transparent cuda, distributed,quantization,trace,report,stream,compare,monitor,explorer")
configure(strict "" -DSTRICT=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "${parts}")
command_of(command strict "/strict.cpp$")
if(command)
  execute_process(COMMAND sh -c "${command}" WORKING_DIRECTORY "${WORK}/strict" RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "headers have warnings: ${output}")
  endif()
  message(STATUS "headers have no warnings")
endif()
