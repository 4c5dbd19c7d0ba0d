# For find_package(Torch) where CUDA's toolkit is missing. The CMake package of a LibTorch with CUDA (Python's wheel, the zips
# for CUDA) demands the toolkit with nvcc of every project, though only projects with CUDA code of their own use it: LibTorch's
# libraries find CUDA's by themselves. The package looks for it unless there is a target torch::cudart; where there is no nvcc,
# an empty one stands for it. A project that needs the toolkit calls find_package(Torch) first, or sets CMAKE_CUDA_COMPILER.
if(NOT TARGET torch::cudart AND NOT CMAKE_CUDA_COMPILER AND NOT CUDA_NVCC_EXECUTABLE)
  find_program(torchtap_nvcc nvcc PATH_SUFFIXES bin NO_CACHE
               HINTS ENV CUDACXX "${CUDAToolkit_ROOT}" "${CUDA_TOOLKIT_ROOT_DIR}" ENV CUDAToolkit_ROOT ENV CUDA_HOME ENV CUDA_PATH
               PATHS /usr/local/cuda /opt/cuda)
  if(NOT torchtap_nvcc)
    add_library(torch::cudart INTERFACE IMPORTED GLOBAL)
  endif()
endif()
