#pragma once

/// Sends parcels in few messages, and receives parcels of several ranks at the same time.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/distributed/detail/parcel.hpp>

namespace torchtap::distributed::detail {

/// Parcels as they travel over a direct transport: a message with two numbers of eight bytes, its text's
/// length and the bytes behind it; the text, with all tensors behind it if they are small; else a message for
/// each tensor.
class Packet {
 public:
  /// An error, and whether its reason is a lost rank, takes the place of the parcels.
  Packet(const std::vector<Parcel>& parcels, const std::string& error, bool lost);
  /// Begins to send it to a rank that receives it as `Incoming`.
  Transport::Pending begin_send(Transport& data, int to, Milliseconds timeout) const;

 private:
  std::vector<at::Tensor> messages_;
};

/// A packet on its way from a rank. Each step begins transfers and returns; the next one waits for them.
/// Ranks that take the same step one after the other send at the same time. Steps throw `LinkError`.
class Incoming {
 public:
  /// The places of a parcel's tensors, in their order.
  using Places = std::function<std::vector<at::Tensor>(const Parcel&)>;

  Incoming(Transport& data, int from, const Patience& patience);
  /// The second step: the text, and small tensors.
  void open();
  /// The third step: large tensors. Without `places` there is new memory for all. Returns the sender's error.
  Verdict read(const Places& places = {});
  std::size_t parcels() const noexcept { return parcels_.size(); }
  /// Waits for a parcel, and moves it out.
  Parcel take(std::size_t number);

 private:
  Transport& data_;
  int from_;
  Patience patience_;
  std::shared_ptr<std::string> sizes_;
  Transport::Pending arrives_;
  std::int64_t length_ = 0;  // of the text
  at::Tensor text_;          // and the tensors behind it
  std::vector<Parcel> parcels_;
  std::vector<std::vector<Transport::Pending>> pending_;  // of each parcel
};

}  // namespace torchtap::distributed::detail
