#pragma once

/// Packs states into parcels, and sends them between ranks.

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

/// One module's recorded data: bytes, and the large tensors beside them.
struct Parcel {
  struct Slot {
    bool reduced = false;
    std::string bytes;
    std::int64_t tensors = 0;  ///< the number of its tensors in `beside`

    template <class Archive>
    void serialize(Archive& archive) {
      archive(reduced, bytes, tensors);
    }
  };

  std::int64_t place = 0;  ///< of the module among the modules of all ranks
  std::int64_t samples = 0, refused = 0, without_tensors = 0;
  std::vector<Slot> slots;
  std::vector<core::detail::TensorPlace> beside;
  std::vector<at::Tensor> tensors;             ///< sent separately
  std::vector<core::detail::StateFact> facts;  ///< not sent

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place, samples, refused, without_tensors, slots, beside);
  }
  std::int64_t bytes() const;
};

/// The tensors share memory with the portion. Passes on exceptions of saving a state.
Parcel packed(const Portion& portion);
/// A portion without id, with sinks like `blank`. Takes over the tensors. Passes on exceptions of loading.
Portion unpacked(Parcel parcel, const core::Sink* blank);

/// The parcels as one text, without their tensors.
std::string encoded(const std::vector<Parcel>& parcels);
/// Throws `LinkError` if `text` is damaged. The parcels have no tensors yet.
std::vector<Parcel> decoded(const std::string& text);

/// Sends all parcels to `to`, and frees each once it is sent; or sends an error, and whether its reason is a
/// lost rank.
void send(Transport& data, std::vector<Parcel> parcels, int to, const std::string& error, bool lost,
          const Patience& patience);
/// Receives from `send`: passes each parcel to `each` while the next parcel arrives. Returns the sender's
/// error. If `each` throws, receives the rest first, then throws its exception.
Verdict recv(Transport& data, int from, const Patience& patience, const std::function<void(Parcel)>& each);
/// The sizes in bytes of the broadcasts of `hand_out`, in order.
std::vector<std::int64_t> sizes_of(const std::string& text, const std::vector<Parcel>& parcels);
/// On the root: broadcasts these parcels; `text` is `encoded(parcels)`.
void hand_out(Transport& data, std::string text, const std::vector<Parcel>& parcels, Milliseconds timeout);
/// On other ranks: receives the root's parcels.
std::vector<Parcel> take_in(Transport& data, int root, const std::vector<std::int64_t>& sizes,
                            Milliseconds timeout);
/// On a rank without a recorder: receives the parcels and drops them.
void pass_by(Transport& data, int root, const std::vector<std::int64_t>& sizes, Milliseconds timeout);

}  // namespace torchtap::distributed::detail
