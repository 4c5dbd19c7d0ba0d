# torchtap::explorer: a model as a live page in the browser (views/explorer/README.md). Beast, which serves it, is headers alone;
# programs that use torchtap::explorer do not need Boost.
find_package(Boost 1.74 QUIET)
set(lacks "")
if(NOT Boost_FOUND)
  set(lacks "it needs Boost's headers (Debian: libboost-dev)")
endif()
torchtap_part(explorer NEEDS views WANTS torchscript ROOMS views/explorer LACKS "${lacks}"
              DESCRIPTION "shows models as they train in the browser")
