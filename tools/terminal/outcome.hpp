#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "files/json.hpp"
#include "terminal/message_text.hpp"

/// The result of a comparison or a check: what everything that was met came to, and the exit status of that.
namespace torchtap::tools {

/// Agreement is said only if everything that was met was looked at in full: what was not is a gap.
class Outcome {
 public:
  /// Something differs, or was found.
  void differ() { differs_ = true; }
  /// Something was met and could not be compared or judged; in words.
  void leave_out(std::string what) { gaps_.push_back(std::move(what)); }

  bool differs() const noexcept { return differs_; }
  const std::vector<std::string>& gaps() const noexcept { return gaps_; }
  /// 1 if something differs, 3 if nothing does but not all was compared, 0 otherwise.
  int status() const noexcept { return differs_ ? 1 : gaps_.empty() ? 0 : 3; }
  /// false, null and true, in the same order.
  Json agree() const { return differs_ ? Json(false) : gaps_.empty() ? Json(true) : Json(nullptr); }
  /// "Not all was compared: a; b and 7 others."; "" if all was. `most` are named.
  std::string gaps_text(const std::string& verb = "compared", std::size_t most = SIZE_MAX) const {
    std::string list;
    for (std::size_t i = 0; i < gaps_.size() && i < most; ++i) list += (i == 0 ? "" : "; ") + gaps_[i];
    if (gaps_.size() > most)
      list += " and " + counted(static_cast<std::int64_t>(gaps_.size() - most), "other");
    return gaps_.empty() ? "" : "Not all was " + verb + ": " + list + ".";
  }

 private:
  bool differs_ = false;
  std::vector<std::string> gaps_;
};

}  // namespace torchtap::tools
