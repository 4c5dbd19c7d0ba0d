# torchtap::stream: tensors to other processes while the model runs (views/stream/README.md). Shared memory that readers cannot
# change, and numbers as they lie there.
set(lacks "")
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  set(lacks "it needs Linux on a little-endian machine")
endif()
torchtap_part(stream NEEDS views ROOMS views/stream LACKS "${lacks}"
              DESCRIPTION "sends tensors to other processes while the model runs")
