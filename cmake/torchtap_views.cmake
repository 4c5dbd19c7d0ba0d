# torchtap::views: what trace, report, stream, explorer and compare share. Users link the views, which link this. Frames are
# bytes as they lie in memory, which needs a little-endian machine, as the views that use them do.
set(views_frames "")
if(CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  set(views_frames views/frames)
endif()
torchtap_component(views DIRECTORY ${views_frames} views/program views/text views/watch
                   DESCRIPTION "is what torchtap's views share")
