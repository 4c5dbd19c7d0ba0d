#pragma once

/// What the scenarios of a rank share.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <torchtap/core/sink.hpp>
#include <torchtap/distributed/distributed.hpp>

namespace rank_test {

namespace tap = torchtap;

inline std::string variable(const char* name, const std::string& otherwise = "") {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

/// The ranks, linked as RANKS_LINK says.
tap::distributed::Group make_group(std::chrono::milliseconds timeout);

/// Says something to the test, on one line.
template <class... Parts>
void say(const Parts&... parts) {
  std::ostringstream line;
  (line << ... << parts);
  std::string text = line.str();
  for (char& c : text) c = c == '\n' ? ' ' : c;
  std::cout << text << std::endl;
}

/// A short name for bytes.
inline std::string digest(const std::string& bytes) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  std::ostringstream text;
  text << std::hex << std::setw(16) << std::setfill('0') << hash;
  return text.str();
}

/// The state of a reduction as bytes.
template <class R>
std::string state_of(const R& reduction) {
  std::ostringstream stream;
  {
    tap::core::OutputArchive archive(stream);
    archive(reduction);
  }
  return stream.str();
}

using Scenario = std::function<void()>;
void add_merging(std::map<std::string, Scenario>& all);
void add_recorders(std::map<std::string, Scenario>& all);
void add_errors(std::map<std::string, Scenario>& all);
void add_losses(std::map<std::string, Scenario>& all);

}  // namespace rank_test
