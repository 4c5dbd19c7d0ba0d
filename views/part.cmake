# torchtap::views: what trace, report, stream, explorer, compare and monitor share. Users link the views, which link this. Frames are
# bytes as they lie in memory, which needs a little-endian machine, as the views that use them do.
find_package(nlohmann_json QUIET)
set(lacks "")
if(NOT nlohmann_json_FOUND)
  set(lacks "it needs nlohmann_json (Debian: nlohmann-json3-dev)")
endif()
set(frames "")
if(CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  set(frames views/frames)
endif()
torchtap_part(views NEEDS operations json ROOMS rules INNER_ROOMS ${frames} views/program views/send views/tensorboard views/text views/watch LACKS "${lacks}"
              DESCRIPTION "is what torchtap's views share")
