#pragma once

/// States on their way between ranks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/core/detail/packed_state.hpp>
#include <torchtap/distributed/detail/header.hpp>
#include <torchtap/distributed/detail/transport.hpp>
#include <torchtap/recorders/detail/exchange.hpp>

namespace torchtap::distributed::detail {

using recorders::detail::Portion;

/// What one module recorded, as bytes and the large tensors beside them.
struct Parcel {
  struct Slot {
    bool reduced = false;
    std::string bytes;
    std::int64_t tensors = 0;  ///< how many of those beside are its own

    template <class Archive>
    void serialize(Archive& archive) {
      archive(reduced, bytes, tensors);
    }
  };

  std::int64_t place = 0;  ///< of the module among those of all ranks
  std::int64_t samples = 0, refused = 0, without_tensors = 0;
  std::vector<Slot> slots;
  std::vector<core::detail::TensorPlace> beside;
  std::vector<at::Tensor> tensors;             ///< sent on their own
  std::vector<core::detail::StateFact> facts;  ///< not sent

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place, samples, refused, without_tensors, slots, beside);
  }
  std::int64_t bytes() const;
};

/// Throws what saving a state throws. The tensors share memory with the portion.
Parcel packed(const Portion& portion);
/// A portion without id, with sinks like `blank`. Takes the tensors over. Throws what loading a state throws.
Portion unpacked(Parcel parcel, const core::Sink* blank);

/// Parcels without their tensors, as one text.
std::string encoded(const std::vector<Parcel>& parcels);
/// Throws `LinkError` if `text` is damaged. The tensors are empty ones, to be filled.
std::vector<Parcel> decoded(const std::string& text);

/// Sends all parcels to `to`, and frees each when it is gone; or an error, and whether a lost rank is its
/// reason.
void send(Transport& data, std::vector<Parcel> parcels, int to, const std::string& error, bool lost,
          const Patience& patience);
/// Receives what `send` sends: hands `each` a parcel while the next one arrives. Returns the sender's error.
/// Whatever `each` throws, everything is received, and then thrown.
Verdict recv(Transport& data, int from, const Patience& patience, const std::function<void(Parcel)>& each);
/// The sizes in bytes of what `hand_out` gives to all ranks, one after the other.
std::vector<std::int64_t> sizes_of(const std::string& text, const std::vector<Parcel>& parcels);
/// On the root: gives all ranks these parcels, whose `encoded` text this is.
void hand_out(Transport& data, std::string text, const std::vector<Parcel>& parcels, Milliseconds timeout);
/// On other ranks: the parcels of the root.
std::vector<Parcel> take_in(Transport& data, int root, const std::vector<std::int64_t>& sizes,
                            Milliseconds timeout);
/// On a rank that has no use for them: takes part and throws them away.
void pass_by(Transport& data, int root, const std::vector<std::int64_t>& sizes, Milliseconds timeout);

}  // namespace torchtap::distributed::detail
