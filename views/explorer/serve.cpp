// Servers for runs in files and for runs of this process.
#include <utility>

#include <torchtap/views/explorer/detail/export.hpp>
#include <torchtap/views/explorer/detail/folders.hpp>
#include <torchtap/views/explorer/detail/http_server.hpp>
#include <torchtap/views/explorer/serve.hpp>

namespace torchtap::views::explorer {

Server::Server(const std::vector<std::string>& directories, const ServeOptions& options) {
  detail::Folders folders(directories);
  detail::Runs runs = folders.open();
  server_ = std::make_unique<detail::HttpServer>(
      std::move(runs), options, [folders = std::move(folders)]() mutable { return folders.appeared(); });
}

Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

const std::string& Server::url() const& noexcept {
  return server_->url();
}

void export_page(const std::vector<std::string>& directories, const std::string& file) {
  detail::export_page(detail::Folders(directories).open(), file);
}

}  // namespace torchtap::views::explorer
