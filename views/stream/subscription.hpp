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

/// The publisher's choice when a frame would overwrite an unread frame of a reader.
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
  /// Takes only the events 0, `every`, 2 × `every`, … of each module; 1 or more.
  TORCH_ARG(std::int64_t, every) = 1;
  /// Takes at most so many frames a second of each module; 0 for no limit.
  TORCH_ARG(double, hz) = 0;
  /// As the publisher says by default.
  TORCH_ARG(std::optional<WhenFull>, when_full);
  /// This reader's name in `torchtap streams`; by default the program's name.
  TORCH_ARG(std::string, label);
};

namespace detail {

/// Throws `c10::ValueError`, which begins with `call`, if the subscription's options are out of range.
void check(const std::string& call, const Subscription& subscription);

}  // namespace detail

}  // namespace torchtap::views::stream
