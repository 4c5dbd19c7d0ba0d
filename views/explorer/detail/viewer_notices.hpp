#pragma once

// The notices that a viewer gets while runs continue.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {

/// The state that one viewer has been sent so far.
class Notices {
 public:
  /// The changes of one run since the last call, as JSON; runs take turns. Empty if nothing did.
  std::string next(const Runs& runs);

 private:
  std::vector<std::uint64_t> told_;  // sequences
  std::size_t turn_ = 0;
};

/// The token in a viewer's first message, {"token":"…"}; empty if it is anything else.
std::string token_in(const std::string& message);

}  // namespace torchtap::views::explorer::detail
