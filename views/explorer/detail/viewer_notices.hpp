#pragma once

// What a viewer is told while runs go on.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {

/// What one viewer was told so far.
class Notices {
 public:
  /// What changed since the last call, as JSON: of one run, so that all come in turns. Empty if nothing did.
  std::string next(const Runs& runs);

 private:
  std::vector<std::uint64_t> told_;  // sequences
  std::size_t turn_ = 0;
};

/// The token in a viewer's first message, {"token":"…"}; empty if it is anything else.
std::string token_in(const std::string& message);

}  // namespace torchtap::views::explorer::detail
