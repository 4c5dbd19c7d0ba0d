# torchtap::distributed: merges what many ranks recorded, over c10d (extras/distributed/README.md). Its headers name
# c10d's ProcessGroup, Backend and Store.
find_path(TORCHTAP_C10D_INCLUDE_DIR torch/csrc/distributed/c10d/ProcessGroup.hpp HINTS ${TORCH_INCLUDE_DIRS})
mark_as_advanced(TORCHTAP_C10D_INCLUDE_DIR)
set(lacks "")
if(NOT TORCHTAP_C10D_INCLUDE_DIR)
  set(lacks "it needs a LibTorch with c10d")
endif()
torchtap_part(distributed WANTS statistics ROOMS distributed LACKS "${lacks}"
              DESCRIPTION "merges what many processes recorded")
