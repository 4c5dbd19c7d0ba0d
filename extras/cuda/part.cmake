# torchtap::cuda: reductions of samples on CUDA devices in a few kernels. Compiles without CUDA; the program loads it.
set(lacks "")
if(NOT UNIX OR APPLE)
  set(lacks "it needs ELF")
endif()
torchtap_part(cuda WANTS statistics ROOMS cuda LACKS "${lacks}"
              DESCRIPTION "reduces samples on CUDA devices with kernels made for that")
