# torchtap::compare: the first place where two programs differ (views/compare/README.md).
set(lacks "")
if(NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  set(lacks "it needs a little-endian machine")
endif()
torchtap_part(compare NEEDS views WANTS torchscript ROOMS views/compare LACKS "${lacks}" SUGGESTS python3-torchtap
              DESCRIPTION "finds the first place where two programs differ")
