# What the tests of the kernel and of its parts have in common.
option(TORCHTAP_TEST_WEEKLY "Also build and run tests that take long and seldom find something" OFF)
find_package(Boost REQUIRED COMPONENTS unit_test_framework)
# For scripts; it may lack torch.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
# For what Python reads and computes again. Without one that has torch and pytest, those tests fail.
if(NOT TORCHTAP_TEST_PYTHON)
  foreach(python IN ITEMS "${Python3_EXECUTABLE}" /usr/bin/python3)
    execute_process(COMMAND "${python}" -c "import pytest, torch" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed EQUAL 0)
      set(TORCHTAP_TEST_PYTHON "${python}" CACHE FILEPATH "A Python interpreter that can import torch and pytest")
      break()
    endif()
  endforeach()
endif()
# Files as they were first written, which are read for good.
set(TORCHTAP_TEST_FORMATS "${PROJECT_SOURCE_DIR}/tests/formats")
# TorchScript models that the test script_models writes, which is a fixture of that name.
set(TORCHTAP_SCRIPT_MODELS "${PROJECT_BINARY_DIR}/tests/script_models")

# The locale of `torchtap_comma_test`, where it can be made.
find_program(TORCHTAP_LOCALEDEF localedef)
if(TORCHTAP_LOCALEDEF AND NOT EXISTS "${PROJECT_BINARY_DIR}/tests/locales/de_DE.UTF-8")
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/tests/locales")
  execute_process(COMMAND "${TORCHTAP_LOCALEDEF}" -i de_DE -f UTF-8 "${PROJECT_BINARY_DIR}/tests/locales/de_DE.UTF-8" OUTPUT_QUIET ERROR_QUIET)
endif()

# Debian's libtorch_cpu is linked with OpenCV and FFmpeg, of which it calls nothing: with them come 210 libraries and a third of
# the time in which a process starts. Tests that start many of ours get empty libraries of these names.
set(TORCHTAP_QUICK_START "")
find_library(libtorch_cpu torch_cpu HINTS "${TORCH_INSTALL_PREFIX}/lib" NO_CACHE)
if(libtorch_cpu AND CMAKE_OBJDUMP AND CMAKE_NM AND NOT TORCHTAP_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  execute_process(COMMAND "${CMAKE_OBJDUMP}" -p "${libtorch_cpu}" OUTPUT_VARIABLE needed ERROR_QUIET)
  execute_process(COMMAND "${CMAKE_NM}" -D --undefined-only "${libtorch_cpu}" OUTPUT_VARIABLE called ERROR_QUIET)
  string(REGEX MATCHALL "lib(opencv_|av|sw)[a-z0-9]+\\.so[.0-9]*" needed "${needed}")
  if(needed AND NOT called MATCHES " (_ZNK?2cv|av_|avcodec_|avformat_|sws_|swr_)")
    set(TORCHTAP_QUICK_START "${PROJECT_BINARY_DIR}/tests/quick_start")
    file(MAKE_DIRECTORY "${TORCHTAP_QUICK_START}")
    foreach(name IN LISTS needed)
      if(NOT EXISTS "${TORCHTAP_QUICK_START}/${name}")
        execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -shared -nostdlib -x c++ /dev/null "-Wl,-soname,${name}"
                                -o "${TORCHTAP_QUICK_START}/${name}")
      endif()
    endforeach()
  endif()
endif()
# torchtap_start_quickly(NAMES...): these tests, and all that they start, which call neither OpenCV nor FFmpeg.
function(torchtap_start_quickly)
  if(TORCHTAP_QUICK_START)
    set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_prepend:${TORCHTAP_QUICK_START}")
  endif()
endfunction()

# The library is tested as it is built; the tests themselves only have to compile fast.
set(TORCHTAP_TEST_OPTIONS -O0 $<$<NOT:$<CONFIG:Release>>:-g1>)

# What tests of hidden functions link in place of the library: its objects.
add_library(torchtap_internals STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:torchtap> $<TARGET_OBJECTS:torchtap_kernels>)
target_include_directories(torchtap_internals PUBLIC $<TARGET_PROPERTY:torchtap,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_features(torchtap_internals PUBLIC cxx_std_${TORCHTAP_CXX_STANDARD})
target_link_libraries(torchtap_internals PUBLIC $<TARGET_GENEX_EVAL:torchtap,$<TARGET_PROPERTY:torchtap,LINK_LIBRARIES>>)
set_target_properties(torchtap_internals PROPERTIES LINKER_LANGUAGE CXX)

# Where rooms are compiled as one file, eight tests are: in a suite of its own, which is a namespace, each file may use any
# name. Files that define what must be outside of namespaces are compiled alone: their CMake file says so.
function(torchtap_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TORCHTAP_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(TORCHTAP_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # types of a test that is included
  endif()
endfunction()

# The main function of all tests.
add_library(torchtap_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/main.cpp")
target_link_libraries(torchtap_test_main PRIVATE Boost::unit_test_framework)
target_compile_definitions(torchtap_test_main PRIVATE BOOST_TEST_DYN_LINK)
target_compile_features(torchtap_test_main PRIVATE cxx_std_${TORCHTAP_CXX_STANDARD})
torchtap_options(torchtap_test_main)

# What is compiled first makes the precompiled headers of its group, and has no definitions that the others lack.
if(TARGET torchtap_transparent)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/tests/caught.cpp" CONTENT "")
  add_library(torchtap_caught_test_headers OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/tests/caught.cpp")
  target_link_libraries(torchtap_caught_test_headers PRIVATE torchtap::torchtap torchtap::transparent Boost::unit_test_framework)
  target_compile_definitions(torchtap_caught_test_headers PRIVATE BOOST_TEST_DYN_LINK)
  torchtap_options(torchtap_caught_test_headers)
  target_compile_options(torchtap_caught_test_headers PRIVATE ${TORCHTAP_TEST_OPTIONS})
  torchtap_torch_headers(test_caught torchtap_caught_test_headers)
endif()

# torchtap_test(NAME [INTERNALS] [CAUGHT] [ARGUMENTS arguments] [WITH part [FILES names]]): one executable, of the sources in the
# folder NAME, or in this one if there is none. With INTERNALS it links objects in place of the libraries: of the kernel, and of
# the part NAME. With CAUGHT it links torchtap::transparent. Tests use the part WITH; where it is not built, the FILES are left out,
# NAME_test.cpp each.
function(torchtap_test name)
  cmake_parse_arguments(test "INTERNALS;CAUGHT" "WITH" "ARGUMENTS;FILES" ${ARGN})
  set(folder "${CMAKE_CURRENT_SOURCE_DIR}/${name}")
  if(NOT EXISTS "${folder}")
    set(folder "${CMAKE_CURRENT_SOURCE_DIR}")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  if(test_WITH AND NOT TARGET torchtap_${test_WITH})
    list(JOIN test_FILES "|" files)
    list(FILTER sources EXCLUDE REGEX "/(${files})_test.cpp$")
  endif()
  add_executable(test_${name} $<TARGET_OBJECTS:torchtap_test_main> ${sources})
  if(test_INTERNALS)
    target_link_libraries(test_${name} PRIVATE torchtap_internals)
    if(TARGET torchtap_${test_WITH})
      target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:torchtap_${test_WITH}>)
      target_include_directories(test_${name} PRIVATE "${TORCHTAP_${test_WITH}_FOLDER}/include")
      target_link_libraries(test_${name} PRIVATE $<TARGET_GENEX_EVAL:torchtap_${test_WITH},$<FILTER:$<TARGET_PROPERTY:torchtap_${test_WITH},LINK_LIBRARIES>,EXCLUDE,^torchtap::>>)
    endif()
    if(TARGET torchtap_${name})
      target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:torchtap_${name}> $<TARGET_OBJECTS:torchtap_views> $<TARGET_OBJECTS:torchtap_operations>
                                                 $<TARGET_OBJECTS:torchtap_json>)
      if(TARGET torchtap_torchscript)
        target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:torchtap_torchscript>)
      endif()
      target_link_libraries(test_${name} PRIVATE nlohmann_json::nlohmann_json)
    endif()
  else()
    target_link_libraries(test_${name} PRIVATE torchtap::torchtap)
  endif()
  target_link_libraries(test_${name} PRIVATE Boost::unit_test_framework)
  target_compile_definitions(test_${name} PRIVATE BOOST_TEST_DYN_LINK TORCHTAP_TEST_PYTHON="${TORCHTAP_TEST_PYTHON}"
                                                  TORCHTAP_TEST_FORMATS="${TORCHTAP_TEST_FORMATS}"
                                                  TORCHTAP_TEST_MODELS="${TORCHTAP_SCRIPT_MODELS}"
                                                  $<$<TARGET_EXISTS:torchtap_torchscript>:TORCHTAP_TEST_TORCHSCRIPT>)
  target_include_directories(test_${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}")  # for "tests/support.hpp"
  torchtap_options(test_${name})
  target_compile_options(test_${name} PRIVATE ${TORCHTAP_TEST_OPTIONS})
  torchtap_compile_together(test_${name})
  if(test_CAUGHT)
    target_link_libraries(test_${name} PRIVATE torchtap::transparent)
    torchtap_torch_headers(test_caught test_${name})
  else()
    torchtap_torch_headers(test test_${name})
  endif()
  add_test(NAME ${name} COMMAND test_${name} ${test_ARGUMENTS})
endfunction()

# torchtap_comma_test(NAME [ARGUMENTS...]): the test NAME once more, in a program whose user's locale has a decimal comma.
function(torchtap_comma_test name)
  add_test(NAME ${name}_comma COMMAND test_${name} ${ARGN})
  set_tests_properties(${name}_comma PROPERTIES ENVIRONMENT "TORCHTAP_TEST_COMMA=de_DE.UTF-8;LOCPATH=${PROJECT_BINARY_DIR}/tests/locales")
endfunction()

# torchtap_python_test(NAME FILE [GIVEN...]): the tests of a Python file, by pytest with tests/python/harness.py. Each GIVEN is a
# target, whose program the tests find as given("TARGET") if it is built, or NAME=VALUE. The command is given to all.
function(torchtap_python_test name file)
  set(harness "${PROJECT_SOURCE_DIR}/tests/python")
  add_test(NAME ${name} COMMAND "${TORCHTAP_TEST_PYTHON}" -B -m pytest -c "${harness}/pytest.ini" --rootdir "${PROJECT_SOURCE_DIR}"
                                "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  set(environment "PYTHONPATH=path_list_prepend:${harness}")
  foreach(given IN ITEMS torchtap_command ${ARGN})
    if(TARGET ${given})
      set(given "${given}=$<TARGET_FILE:${given}>")
    endif()
    if(given MATCHES "^([^=]+)=(.+)")
      list(APPEND environment "TORCHTAP_TEST_${CMAKE_MATCH_1}=set:${CMAKE_MATCH_2}")
    endif()
  endforeach()
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT_MODIFICATION "${environment}")
endfunction()

# Labels the tests of this folder, so that `ctest -L NAME` runs them: the last line of the CMake file of a part's tests.
function(torchtap_label_tests name)
  get_property(tests DIRECTORY PROPERTY TESTS)
  set_tests_properties(${tests} PROPERTIES LABELS "${name}")
endfunction()
