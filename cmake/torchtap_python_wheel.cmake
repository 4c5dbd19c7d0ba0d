# For the wheel that pyproject.toml describes: finds the PyTorch of the environment, and lays out the installation as a folder
# beside it.
find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)
# -I looks past the environment that pip makes for the build alone.
execute_process(COMMAND "${Python3_EXECUTABLE}" -I -c "import torch; print(torch.utils.cmake_prefix_path)"
                OUTPUT_VARIABLE of_torch OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(PREPEND CMAKE_PREFIX_PATH "${of_torch}")
set(CMAKE_INSTALL_LIBDIR lib)
set(CMAKE_PLATFORM_NO_VERSIONED_SONAME ON)  # wheels hold no links
list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN/../../torch/lib")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH OFF)
