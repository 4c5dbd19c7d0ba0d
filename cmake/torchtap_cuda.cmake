# torchtap::cuda: reductions of samples on CUDA devices in a kernel or two. Compiles without CUDA; the program loads it.
torchtap_component(cuda DIRECTORY cuda
                   DESCRIPTION "reduces samples on CUDA devices with kernels made for it")
target_link_libraries(torchtap_cuda PRIVATE ${CMAKE_DL_LIBS})
