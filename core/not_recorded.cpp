// Adds counts up and puts them into words.
#include <c10/util/StringUtil.h>

#include <tuple>

#include <torchtap/core/not_recorded.hpp>

namespace torchtap::core {

NotRecorded& NotRecorded::operator+=(const NotRecorded& later) {
  if (why_left_out.empty()) why_left_out = later.why_left_out;
  refused += later.refused;
  without_tensors += later.without_tensors;
  left_out += later.left_out;
  none += later.none;
  dropped += later.dropped;
  unmatched += later.unmatched;
  unmatched_samples += later.unmatched_samples;
  return *this;
}

bool NotRecorded::operator==(const NotRecorded& other) const {
  const auto fields = [](const NotRecorded& one) {
    return std::tie(one.refused, one.without_tensors, one.left_out, one.none, one.why_left_out, one.dropped,
                    one.unmatched, one.unmatched_samples);
  };
  return fields(*this) == fields(other);
}

std::int64_t NotRecorded::events() const noexcept {
  return refused + without_tensors + left_out + dropped + unmatched_samples;
}

bool NotRecorded::empty() const noexcept {
  return events() == 0 && none == 0 && unmatched == 0;
}

std::string NotRecorded::note() const {
  std::string text;
  const auto add = [&](std::int64_t count, const char* what, const std::string& why) {
    if (count == 0) return;
    text += c10::str(text.empty() ? "" : " ", count, " of its ", what, count == 1 ? " was " : " were ", why);
  };
  add(left_out + none, "samples", "left out: " + why_left_out);
  add(dropped, "samples", "dropped for lack of room.");
  if (unmatched != 0) {
    text += c10::str(text.empty() ? "" : " ", unmatched,
                     " of its samples and companions found no partner in their forward.");
  }
  return text;
}

}  // namespace torchtap::core
