#pragma once

// Answers browsers, in one thread of its own. Only http_server.cpp knows Boost.

#include <memory>
#include <string>

#include <torchtap/views/explorer/detail/answers.hpp>
#include <torchtap/views/explorer/detail/process.hpp>
#include <torchtap/views/explorer/serve.hpp>

namespace torchtap::views::explorer::detail {

class HttpServer {
 public:
  /// Throws as `Server` does.
  HttpServer(Runs runs, const ServeOptions& options);
  /// Ends all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& url() const noexcept;

 private:
  class Machinery;
  std::unique_ptr<Machinery> machinery_;
  MadeHere made_here_;
};

}  // namespace torchtap::views::explorer::detail
