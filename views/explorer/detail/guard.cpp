// Checks the token and the names of the server.
#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <sys/random.h>

#include <algorithm>
#include <cctype>

#include <torchtap/views/explorer/detail/guard.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr std::size_t shortest_token = 16;

std::string random_token() {
  unsigned char bytes[16];
  TORCH_CHECK(::getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes),
              "views::explorer: the system gave no random bytes for a token.");
  std::string token;
  for (const unsigned char byte : bytes) {
    token += "0123456789abcdef"[byte >> 4U];
    token += "0123456789abcdef"[byte & 15U];
  }
  return token;
}

std::string checked(const std::string& token) {
  const bool plain = std::all_of(token.begin(), token.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_';
  });
  TORCH_CHECK_VALUE(token.size() >= shortest_token && plain,
                    "views::explorer::ServeOptions::token: expected at least ", shortest_token,
                    " letters, digits, - or _, got ", token.size(),
                    " characters; leave it empty for a random one.");
  return token;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

/// The name in a `Host` header. The port may belong to a tunnel or a proxy.
std::string without_port(const std::string& host) {
  const std::size_t colon = host.find(':', host.find(']') == std::string::npos ? 0 : host.find(']'));
  const bool digits = colon != std::string::npos && colon + 1 < host.size() &&
                      host.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return digits ? host.substr(0, colon) : host;
}

/// "192.0.2.2" or "[::1]".
bool is_address(const std::string& name) {
  unsigned char bytes[16];
  if (name.size() > 2 && name.front() == '[' && name.back() == ']')
    return ::inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(), bytes) == 1;
  return ::inet_pton(AF_INET, name.c_str(), bytes) == 1;
}

}  // namespace

Guard::Guard(const ServeOptions& options)
    : token_(options.token().empty() ? random_token() : checked(options.token())) {
  for (const std::string& name : options.hosts()) hosts_.push_back(lower(name));
}

bool Guard::knows_host(const std::string& host) const {
  const std::string whole = lower(host), name = without_port(whole);
  // A page of another site can make its own name resolve to this machine, but not an address.
  if (name == "localhost" || is_address(name)) return true;
  return std::any_of(hosts_.begin(), hosts_.end(),
                     [&](const std::string& known) { return known == name || known == whole; });
}

bool Guard::is_own(const std::string& origin, const std::string& host) {
  return lower(origin) == "http://" + lower(host) || lower(origin) == "https://" + lower(host);
}

bool Guard::is_token(const std::string& text) const noexcept {
  if (text.size() != token_.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    different |= static_cast<unsigned char>(text[i]) ^ static_cast<unsigned char>(token_[i]);
  }
  return different == 0;
}

bool Guard::authorizes(const std::string& authorization) const {
  const std::string scheme = "Bearer ";
  return authorization.compare(0, scheme.size(), scheme) == 0 &&
         is_token(authorization.substr(scheme.size()));
}

}  // namespace torchtap::views::explorer::detail
