// Who may ask what.
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
              "explorer: the system gave no random bytes for a token.");
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
                    "explorer::ServeOptions::token: expected at least ", shortest_token,
                    " letters, digits, - or _, got ", token.size(),
                    " characters; leave it empty for a random one.");
  return token;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

std::string bracketed(const std::string& address) {
  return address.find(':') != std::string::npos && address.front() != '[' ? "[" + address + "]" : address;
}

}  // namespace

Guard::Guard(const ServeOptions& options, unsigned port)
    : token_(options.token().empty() ? random_token() : checked(options.token())) {
  const std::string colon = ":" + std::to_string(port);
  for (const std::string& name : {std::string("localhost"), std::string("127.0.0.1"), std::string("[::1]"),
                                  bracketed(options.address())}) {
    hosts_.push_back(lower(name) + colon);
    if (port == 80) hosts_.push_back(lower(name));
  }
  for (const std::string& name : options.hosts()) {
    hosts_.push_back(lower(name));  // with the port of a proxy, or without one
    hosts_.push_back(lower(name) + colon);
  }
}

bool Guard::knows_host(const std::string& host) const {
  return std::find(hosts_.begin(), hosts_.end(), lower(host)) != hosts_.end();
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
