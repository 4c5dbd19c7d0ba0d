# torchtap::cuda: reductions of samples on CUDA devices in a few kernels. Compiles without CUDA; the program loads it.
torchtap_component(cuda DIRECTORY cuda
                   DESCRIPTION "reduces samples on CUDA devices with kernels made for that")
target_link_libraries(torchtap_cuda PRIVATE ${CMAKE_DL_LIBS})
