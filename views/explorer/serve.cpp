// Servers for runs in files and for those of this process.
#include <c10/util/Exception.h>

#include <utility>

#include <torchtap/views/explorer/detail/export.hpp>
#include <torchtap/views/explorer/detail/file_run.hpp>
#include <torchtap/views/explorer/detail/http_server.hpp>
#include <torchtap/views/explorer/serve.hpp>

namespace torchtap::views::explorer {
namespace {

detail::Runs opened(const std::vector<std::string>& directories) {
  TORCH_CHECK_VALUE(!directories.empty(),
                    "explorer: there is nothing to show; pass at least one "
                    "directory that Options().save() named.");
  detail::Runs runs;
  for (const std::string& directory : directories)
    runs.push_back(std::make_shared<detail::FileRun>(directory));
  return runs;
}

}  // namespace

Server::Server(const std::vector<std::string>& directories, const ServeOptions& options)
    : server_(std::make_unique<detail::HttpServer>(opened(directories), options)) {}

Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

const std::string& Server::url() const noexcept {
  return server_->url();
}

void export_page(const std::vector<std::string>& directories, const std::string& file) {
  detail::export_page(opened(directories), file);
}

}  // namespace torchtap::views::explorer
