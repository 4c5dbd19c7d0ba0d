# torchtap::report: what each module costs (docs/guides/report.md).
torchtap_component(report DIRECTORY views/report NEEDS views
                   DESCRIPTION "measures what each module of a model takes in time, memory and work")

# Its page: its style and script are put into it, and all of it into a C++ file.
set(page_folder "${PROJECT_SOURCE_DIR}/views/report/page")
foreach(part IN ITEMS html css js)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page_folder}/page.${part}")
  file(READ "${page_folder}/page.${part}" page_${part})
endforeach()
string(REPLACE "<!--style-->" "${page_css}" page "${page_html}")
string(REPLACE "<!--script-->" "${page_js}" page "${page}")
# Written only if it changes.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/report_page.cpp" @ONLY CONTENT [[
// Made by cmake/torchtap_report.cmake of views/report/page/.
#include <torchtap/views/report/detail/page.hpp>

namespace torchtap::views::report::detail {

const char* const kPage = R"torchtap_page(@page@)torchtap_page";

}  // namespace torchtap::views::report::detail
]])
target_sources(torchtap_report PRIVATE "${PROJECT_BINARY_DIR}/report_page.cpp")
