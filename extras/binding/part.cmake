# torchtap in Python: recorders for its models, over the library (extras/binding/README.md). Needs the LibTorch of Python's wheel,
# and the headers of the Python that the wheel is for.
set(lacks "it needs the LibTorch of Python's wheel, 2.11 or newer")
find_library(TORCHTAP_TORCH_PYTHON_LIBRARY torch_python HINTS "${TORCH_INSTALL_PREFIX}/lib" NO_DEFAULT_PATH)
find_path(TORCHTAP_PYBIND_INCLUDE_DIR pybind11/pybind11.h HINTS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH)
mark_as_advanced(TORCHTAP_TORCH_PYTHON_LIBRARY TORCHTAP_PYBIND_INCLUDE_DIR)
if(Torch_VERSION VERSION_GREATER_EQUAL 2.11 AND TORCHTAP_TORCH_PYTHON_LIBRARY AND TORCHTAP_PYBIND_INCLUDE_DIR)
  set(version "")
  if(TORCH_INSTALL_PREFIX MATCHES "/python(3\\.[0-9]+)/")
    set(version ${CMAKE_MATCH_1} EXACT)
  endif()
  find_package(Python3 ${version} QUIET COMPONENTS Interpreter Development.Module)
  set(lacks "")
  if(NOT Python3_Development.Module_FOUND)
    set(lacks "it needs the headers of the Python that the wheel is for (python3-dev)")
  endif()
endif()
torchtap_part(python NEEDS statistics LACKS "${lacks}" WANTS distributed cuda torchscript rows
              AFTER report trace compare explorer monitor stream quantization DESCRIPTION "records and views models of Python")
