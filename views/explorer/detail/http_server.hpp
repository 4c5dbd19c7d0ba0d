#pragma once

// Answers browsers in its own thread. Only http_server.cpp knows Boost.

#include <functional>
#include <memory>
#include <string>

#include <torchtap/base/process.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>
#include <torchtap/views/explorer/serve.hpp>

namespace torchtap::views::explorer::detail {

class HttpServer {
 public:
  /// Runs that are new.
  using Appeared = std::function<Runs()>;

  /// Asks `appeared` every so often, in its own thread. Throws as `Server` does.
  HttpServer(Runs runs, const ServeOptions& options, Appeared appeared = {});
  /// Ends all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  const std::string& url() const noexcept;
  /// Shows this run, too.
  void add(std::shared_ptr<Run> run);

 private:
  class Machinery;
  std::unique_ptr<Machinery> machinery_;
  base::MadeHere made_here_;
};

}  // namespace torchtap::views::explorer::detail
