#pragma once

// The page's requests, and the answers: JSON, and columns as bytes (views/explorer/FORMAT.md has both).

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/json/json.hpp>
#include <torchtap/views/explorer/detail/run.hpp>

namespace torchtap::views::explorer::detail {

struct Answer {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::string tag;       // for ETag; left out if empty
  std::string encoding;  // "gzip", or "identity" where it could be packed; left out if empty
};

/// "/api/v1/runs/r0/graph?mode=train" in parts.
struct Request {
  std::vector<std::string> path;
  std::map<std::string, std::string> query;

  /// Splits and unescapes. Throws `c10::ValueError` for an invalid escape.
  static Request parse(const std::string& target);
};

/// The runs that one page shows: "r0", "r1", …
using Runs = std::vector<std::shared_ptr<Run>>;

/// The answer to GET of a path below /api/v1. 404 if it does not exist, 400 if the request cannot be
/// understood, each with a sentence as JSON. Throws as the readers of damaged files do. `control`: whether
/// pages may change how often runs record.
Answer answer(const Runs& runs, const std::string& target, bool control = false);

/// The answer to PUT of /api/v1/runs/RUN/control with {"every": 100, "paused": false}, either of which may be
/// missing. 400 with a sentence for anything else, 403 for a run that is not recorded by this process.
Answer control_answer(const Runs& runs, const std::string& target, const std::string& body);

/// The run "r0", or the run with that identity; null if there is none.
std::shared_ptr<Run> run_named(const Runs& runs, const std::string& name);

/// The parts of an answer, which a page without a server has, too.
json::Json runs_json(const Runs& runs, bool control = false);
json::Json series_json(Run& run);
json::Json scalars_json(const Run& run, std::int64_t since);
json::Json health_json(Run& run);
json::Json compare_json(Run& a, Run& b, std::int64_t step);

struct ColumnsAsked {
  std::vector<std::int32_t> ids;
  std::uint64_t since = 0;
  bool zoom = false;
  std::int64_t from = 0, to = 0;
  std::size_t columns = 0;  // the most; 0 for all
};
std::string columns_bytes(Run& run, const ColumnsAsked& asked);

/// {"error": "…"}.
Answer answer_of(const json::Json& document, int status = 200);
Answer refusal(int status, const std::string& sentence);

}  // namespace torchtap::views::explorer::detail
