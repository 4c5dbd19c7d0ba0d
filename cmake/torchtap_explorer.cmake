# torchtap::explorer: a model as a live page in the browser (docs/guides/explorer.md). A library of its own, so that the
# core needs neither a server nor a page.
torchtap_component(explorer DIRECTORY views/explorer NEEDS views
                   DESCRIPTION "shows models as they train in the browser")

# Beast is headers alone; programs that use torchtap::explorer do not need Boost.
find_package(Boost 1.74 REQUIRED)
find_package(Threads REQUIRED)
target_link_libraries(torchtap_explorer PRIVATE Boost::headers Threads::Threads)
# Serving needs no debugger's view of Boost, which takes most of the time to compile. GCC says that ThreadSanitizer does not
# understand Asio's fences.
set_source_files_properties("${PROJECT_SOURCE_DIR}/views/explorer/detail/http_server.cpp" PROPERTIES
                            COMPILE_OPTIONS "-g0;-Wno-tsan")

# The page: what `npm run build` in views/explorer/web made, as a C++ file. Without it the server answers all but the page.
# Where gzip is there, it is sent packed.
find_program(TORCHTAP_GZIP gzip)
mark_as_advanced(TORCHTAP_GZIP)
file(GLOB page CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/views/explorer/web/dist/*")
set(assets "${PROJECT_BINARY_DIR}/explorer_assets.cpp")
add_custom_command(OUTPUT "${assets}"
                   COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${assets}" "-DFILES=${page}"
                           "-DGZIP=${TORCHTAP_GZIP}"
                           -P "${PROJECT_SOURCE_DIR}/cmake/torchtap_explorer_assets.cmake"
                   DEPENDS ${page} "${PROJECT_SOURCE_DIR}/cmake/torchtap_explorer_assets.cmake" VERBATIM)
target_sources(torchtap_explorer PRIVATE "${assets}")
