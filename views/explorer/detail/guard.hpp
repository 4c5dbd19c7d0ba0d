#pragma once

// Decides who may ask: by the token, and the names by which a browser may call the server. Without the
// latter, a page of another site could have its own name resolve to this machine and read the answers.

#include <string>
#include <vector>

#include <torchtap/views/explorer/serve.hpp>

namespace torchtap::views::explorer::detail {

class Guard {
 public:
  /// Throws `c10::ValueError` for a token that is too short or does not fit into a URL.
  explicit Guard(const ServeOptions& options);

  const std::string& token() const noexcept { return token_; }
  /// Whether a `Host` header is allowed: "localhost:8080", an IP address, or a name among the options.
  bool knows_host(const std::string& host) const;
  /// Whether an `Origin` header names our own page, which was loaded from `host`.
  static bool is_own(const std::string& origin, const std::string& host);
  /// Whether this is the token. Takes as long for each wrong one of its length.
  bool is_token(const std::string& text) const noexcept;
  /// Whether an `Authorization` header has it.
  bool authorizes(const std::string& authorization) const;

 private:
  std::string token_;
  std::vector<std::string> hosts_;
};

}  // namespace torchtap::views::explorer::detail
