#pragma once

/// Shows runs in the browser.

#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::explorer {

namespace detail {
class HttpServer;
}  // namespace detail

/// The address of a page, and who may see it: `ServeOptions().port(8080)`.
class TORCHTAP_API ServeOptions {
  /// The port; 0 for the first free one from 8080 on.
  TORCH_ARG(std::int64_t, port) = 0;
  /// The address to listen on. Anything but the machine itself ("127.0.0.1", "::1") lets others on the
  /// network reach the page; they need the token.
  TORCH_ARG(std::string, address) = "127.0.0.1";
  /// The secret that the page has to know, at least 16 letters; 128 random bits if empty.
  TORCH_ARG(std::string, token);
  /// Names by which browsers may call this machine, besides "localhost" and any IP address.
  TORCH_ARG(std::vector<std::string>, hosts);
  /// Lets pages that know the token change how often the run of this program is recorded, and pause it.
  TORCH_ARG(bool, control) = false;
};

/// A page that shows runs, until it is destroyed. One thread answers all viewers.
class TORCHTAP_API Server {
 public:
  /// Shows all runs in directories that `ExplorerOptions::save` named, finished or not; new data and further
  /// runs appear. Throws `c10::Error` if a directory has no run, if the port is taken or cannot be listened
  /// on, `c10::ValueError` for a damaged file or wrong options.
  explicit Server(const std::vector<std::string>& directories, const ServeOptions& options = {});
  ~Server();
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;

  /// The address to open in a browser: "http://127.0.0.1:8080/#token=…".
  const std::string& url() const& noexcept;
  /// For a temporary: returns by value.
  std::string url() && { return url(); }

 private:
  std::unique_ptr<detail::HttpServer> server_;
};

/// Writes the page with the runs of these directories into one file, which needs neither a server nor a
/// network. Throws as `Server` does for the directories, and `c10::Error` if the file cannot be written.
TORCHTAP_API void export_page(const std::vector<std::string>& directories, const std::string& file);

}  // namespace torchtap::views::explorer
