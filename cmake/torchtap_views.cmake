# torchtap::views: what trace, report, stream, explorer, compare and monitor share. Users link the views, which link this. Frames are
# bytes as they lie in memory, which needs a little-endian machine, as the views that use them do.
set(views_frames "")
if(CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  set(views_frames views/frames)
endif()
# Rings of frames need Linux.
set(views_left_out "")
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(views_left_out EXCLUDE "/views/frames/detail/")
endif()
torchtap_component(views DIRECTORY rules ${views_frames} views/program views/tensorboard views/text views/watch ${views_left_out}
                   DESCRIPTION "is what torchtap's views share")
