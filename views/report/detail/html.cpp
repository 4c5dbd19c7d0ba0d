// Writes measurements as a page for a browser: the page of views/report/page/ with the results as JSON in it.
#include <c10/util/Exception.h>

#include <string_view>

#include <torchtap/views/report/detail/page.hpp>
#include <torchtap/views/report/detail/write_json.hpp>
#include <torchtap/views/report/save.hpp>

namespace torchtap::views::report {
namespace {

/// JSON that HTML takes for text. These letters occur only inside of JSON's strings.
std::string in_html(const std::string& json) {
  std::string text;
  for (const char letter : json) {
    switch (letter) {
      case '<':
        text += "\\u003c";
        break;
      case '>':
        text += "\\u003e";
        break;
      case '&':
        text += "\\u0026";
        break;
      default:
        text += letter;
    }
  }
  return text;
}

}  // namespace

std::string html(const Measurements& results) {
  constexpr std::string_view marker = "<!--data-->";
  std::string page = detail::kPage;
  const std::size_t place = page.find(marker);
  TORCH_INTERNAL_ASSERT(place != std::string::npos);
  return page.replace(place, marker.size(), in_html(detail::write_json(results, /*ordered=*/true)));
}

}  // namespace torchtap::views::report
