#pragma once

/// A reader's request to a publisher. It belongs to the reader, and may change while both run.

#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/stream/frame.hpp>

namespace torchtap::views::stream {

/// What the publisher does with a frame for a reader that has not yet read what the frame would overwrite.
enum class WhenFull : std::uint8_t {
  /// Waits, at most `PublisherOptions::wait_at_most`; from then on that reader's frames are overwritten.
  wait,
  /// Overwrites. The reader continues with the newest frame and counts the frames that it missed.
  skip,
};

/// Chained like LibTorch's own options: `Subscription().names({"layer1*"}).hz(5)`.
struct TORCHTAP_API Subscription {
  /// Paths of modules, or globs in which `*` also crosses dots; all modules by default.
  TORCH_ARG(std::vector<std::string>, names);
  /// All kinds by default.
  TORCH_ARG(std::vector<Kind>, kinds);
  /// Of each module only the events 0, `every`, 2 × `every`, …; 1 or more.
  TORCH_ARG(std::int64_t, every) = 1;
  /// Of each module at most so many frames a second; 0 for no limit.
  TORCH_ARG(double, hz) = 0;
  /// As the publisher says by default.
  TORCH_ARG(std::optional<WhenFull>, when_full);
  /// This reader's name in `torchtap streams`; by default the program's name.
  TORCH_ARG(std::string, label);
};

namespace detail {

/// Throws `c10::ValueError`, which begins with `call`, unless the subscription is one that can be met.
void check(const std::string& call, const Subscription& subscription);

}  // namespace detail

}  // namespace torchtap::views::stream
