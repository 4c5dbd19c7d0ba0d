// The page and its data in one file.
#include <c10/util/Exception.h>

#include <limits>
#include <ostream>
#include <utility>

#include <torchtap/base/write_file.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/explorer/detail/assets.hpp>
#include <torchtap/views/explorer/detail/export.hpp>

namespace torchtap::views::explorer::detail {
namespace {

std::string asset(const char* path) {
  const Asset* const found = find_asset(path);
  TORCH_CHECK(found != nullptr, "views::explorer::export_page: this torchtap was built without the page (",
              path, " is missing); build views/explorer/web before torchtap.");
  return {reinterpret_cast<const char*>(found->data), found->size};
}

/// `page` with `text` in place of the only `mark`.
std::string filled(const std::string& page, const std::string& mark, const std::string& text) {
  const std::size_t at = page.find(mark);
  TORCH_CHECK(at != std::string::npos && page.find(mark, at + mark.size()) == std::string::npos,
              "views::explorer::export_page: the page that this torchtap was built with has not one ", mark,
              ".");
  return page.substr(0, at) + text + page.substr(at + mark.size());
}

std::string without_tags(const std::string& json) {
  std::string result;
  for (const char letter : json) {
    if (letter == '<') {
      result += "\\u003c";
    } else {
      result += letter;
    }
  }
  return result;
}

}  // namespace

std::string base64(const std::string& bytes) {
  constexpr const char* letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : letters[(group >> (18 - 6 * k)) & 63U];
  }
  return text;
}

std::string export_json(const Runs& runs) {
  json::Json all{{"runs", runs_json(runs)}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = *runs[i];
    json::Json graphs = json::Json::object();
    for (const Mode mode : {Mode::train, Mode::eval}) {
      const std::string graph = run.graph(mode).json;
      if (!graph.empty())
        graphs[name_of(mode)] = json::parse(graph, "views::explorer::export_page: of a graph ");
    }
    all["r" + std::to_string(i)] = {{"graph", std::move(graphs)},
                                    {"series", series_json(run)},
                                    {"scalars", scalars_json(run, std::numeric_limits<std::int64_t>::min())},
                                    {"health", health_json(run)},
                                    {"columns", base64(columns_bytes(run, {}))}};
  }
  return without_tags(json::text(all));
}

void export_page(const Runs& runs, const std::string& file) {
  std::string page = asset("/export.html");
  page = filled(page, "@TORCHTAP_CSS@", asset("/app.css"));
  page = filled(page, "@TORCHTAP_WORKER@", asset("/worker.js"));
  page = filled(page, "@TORCHTAP_APP@", asset("/app.js"));
  page = filled(page, "@TORCHTAP_DATA@", export_json(runs));  // last: names in it may look like a mark
  base::write_file("views::explorer::export_page", file, [&](std::ostream& out) { out << page; });
}

}  // namespace torchtap::views::explorer::detail
