#pragma once

// Decides everything about an answer except the bytes of HTTP.

#include <string>

#include <torchtap/views/explorer/detail/guard.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {

/// A request, with the headers that matter.
struct Asked {
  std::string method;  // "GET"
  std::string target, host, origin, authorization, body;
  bool reads_gzip = false;
};

struct Site {
  Runs runs;
  Guard guard;
  bool control;  // whether pages may change how often runs record

  Answer answer(const Asked& asked) const;
};

}  // namespace torchtap::views::explorer::detail
