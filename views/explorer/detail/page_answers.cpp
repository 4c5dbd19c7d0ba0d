// Answers requests for the page's data.
#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr auto last_step = std::numeric_limits<std::int64_t>::max();

std::string unescaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    unsigned code = 0;
    const char* const first = text.data() + i + 1;
    const bool fits = i + 2 < text.size();
    const auto [end, error] = fits ? std::from_chars(first, first + 2, code, 16) : std::from_chars_result{};
    TORCH_CHECK_VALUE(fits && error == std::errc() && end == first + 2, "\"", text, "\" has a % without two ",
                      "hexadecimal digits.");
    result += static_cast<char>(code);
    i += 2;
  }
  return result;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <class T>
T number(const std::string& text, const char* what) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + text.size(), what, " is a number, got \"",
                    text, "\".");
  return value;
}

template <class T>
T number(const Request& request, const char* name, T otherwise) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? otherwise : number<T>(found->second, name);
}

Answer columns_answer(Run& run, const Request& request) {
  ColumnsAsked asked;
  const auto ids = request.query.find("ids");
  if (ids != request.query.end()) {
    for (const std::string& id : split(ids->second, ','))
      asked.ids.push_back(number<std::int32_t>(id, "ids"));
  }
  asked.since = number<std::uint64_t>(request, "since", 0);
  asked.zoom = request.query.count("from") + request.query.count("to") > 0;
  asked.from = number<std::int64_t>(request, "from", 0);
  asked.to = number<std::int64_t>(request, "to", last_step);
  asked.columns = number<std::size_t>(request, "columns", 0);
  return {200, "application/octet-stream", columns_bytes(run, asked), "", ""};
}

Answer of_run(Run& run, const std::string& what, const Request& request) {
  if (what == "graph") {
    const auto mode = request.query.find("mode");
    const std::string name = mode == request.query.end() ? "train" : mode->second;
    if (name != "train" && name != "eval")
      return refusal(400, "mode is train or eval, got \"" + name + "\".");
    const Run::GraphText text = run.graph(name == "train" ? Mode::train : Mode::eval);
    if (text.json.empty()) return refusal(404, "The model did not run in mode " + name + ".");
    return {200, "application/json", text.json, text.tag, ""};
  }
  if (what == "series") return answer_of(series_json(run));
  if (what == "scalars")
    return answer_of(
        scalars_json(run, number<std::int64_t>(request, "since", std::numeric_limits<std::int64_t>::min())));
  if (what == "health") return answer_of(health_json(run));
  if (what == "columns") return columns_answer(run, request);
  return refusal(404, "There is no \"" + what + "\" of a run.");
}

Answer find(const Runs& runs, const std::string& target, bool control) {
  const Request request = Request::parse(target);
  const auto& path = request.path;
  const std::size_t size = path.size();
  if (size < 3 || path[0] != "api" || path[1] != "v1") return refusal(404, "There is nothing at this path.");
  if (size == 3 && path[2] == "runs") return answer_of(runs_json(runs, control));
  if (size == 3 && path[2] == "compare") {
    const auto named = [&](const char* name) {
      const auto found = request.query.find(name);
      return found == request.query.end() ? nullptr : run_named(runs, found->second);
    };
    const auto a = named("a"), b = named("b");
    if (a == nullptr || b == nullptr) return refusal(404, "compare needs two runs, as in ?a=r0&b=r1.");
    return answer_of(compare_json(*a, *b, number<std::int64_t>(request, "step", last_step)));
  }
  if (size != 5 || path[2] != "runs") return refusal(404, "There is nothing at this path.");
  const auto run = run_named(runs, path[3]);
  if (run == nullptr) return refusal(404, "There is no run \"" + path[3] + "\".");
  return of_run(*run, path[4], request);
}

}  // namespace

std::shared_ptr<Run> run_named(const Runs& runs, const std::string& name) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (name == "r" + std::to_string(i) || name == runs[i]->info().identity) return runs[i];
  }
  return nullptr;
}

Request Request::parse(const std::string& target) {
  Request request;
  const std::size_t mark = std::min(target.find('?'), target.size());
  for (const std::string& part : split(target.substr(0, mark), '/')) request.path.push_back(unescaped(part));
  for (const std::string& pair : split(target.substr(std::min(mark + 1, target.size())), '&')) {
    const std::size_t equals = std::min(pair.find('='), pair.size());
    request.query[unescaped(pair.substr(0, equals))] =
        unescaped(pair.substr(std::min(equals + 1, pair.size())));
  }
  return request;
}

Answer answer_of(const json::Json& document, int status) {
  return {status, "application/json", json::text(document), "", ""};
}

Answer refusal(int status, const std::string& sentence) {
  return answer_of({{"error", sentence}}, status);
}

Answer answer(const Runs& runs, const std::string& target, bool control) {
  try {
    return find(runs, target, control);
  } catch (const c10::ValueError& error) {
    return refusal(400, error.what_without_backtrace());
  }
}

}  // namespace torchtap::views::explorer::detail
