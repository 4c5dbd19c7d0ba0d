// Answers requests of visitors who may ask.
#include <c10/util/Exception.h>

#include <torchtap/views/explorer/detail/assets.hpp>
#include <torchtap/views/explorer/detail/site.hpp>

namespace torchtap::views::explorer::detail {
namespace {

Answer asset_answer(const std::string& target, bool packed) {
  const std::string path = target.substr(0, target.find('?'));
  const Asset* const asset = find_asset(path == "/" ? "/index.html" : path);
  const auto bytes = [](const unsigned char* data, std::size_t size) {
    return std::string(reinterpret_cast<const char*>(data), size);
  };
  if (asset != nullptr && packed && asset->packed != nullptr)
    return {200, asset->type, bytes(asset->packed, asset->packed_size), std::string(asset->tag) + "-gzip",
            "gzip"};
  if (asset != nullptr) return {200, asset->type, bytes(asset->data, asset->size), asset->tag, "identity"};
  if (path == "/")
    return refusal(503,
                   "This torchtap was built without the explorer's page; the API below /api/v1 answers.");
  return refusal(404, "There is nothing at this path.");
}

Answer put_answer(const Asked& asked, const Site& site) {
  if (!site.control)
    return refusal(403, "Pages may look only; the program would allow more by ServeOptions().control(true).");
  if (!Guard::is_own(asked.origin, asked.host))
    return refusal(403, "Pages of other sites change nothing here.");
  return control_answer(site.runs, asked.target, asked.body);
}

}  // namespace

Answer Site::answer(const Asked& asked) const {
  if (!guard.knows_host(asked.host))
    return refusal(
        421,
        "This server is not known by that name; add it with ServeOptions::hosts or --hosts, or use an "
        "IP address.");
  const bool api = asked.target.compare(0, 5, "/api/") == 0;
  if (api && !guard.authorizes(asked.authorization))
    return refusal(403, "The token is missing or wrong; open the address that serve() returned.");
  if (api && asked.method == "PUT") return put_answer(asked, *this);
  if (asked.method != "GET" && asked.method != "HEAD") return refusal(405, "Only GET is answered.");
  if (!api) return asset_answer(asked.target, asked.reads_gzip);
  try {
    return detail::answer(runs, asked.target, control);
  } catch (const c10::Error& error) {
    return refusal(500, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return refusal(500, error.what());
  }
}

}  // namespace torchtap::views::explorer::detail
