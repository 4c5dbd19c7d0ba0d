#pragma once

/// Packs states into parcels, and sends them between ranks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/distributed/detail/header.hpp>
#include <torchtap/distributed/detail/packed_state.hpp>
#include <torchtap/distributed/detail/portion.hpp>
#include <torchtap/distributed/detail/transport.hpp>

namespace torchtap::distributed::detail {

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
  std::int64_t samples = 0;
  core::NotRecorded not_recorded;
  std::vector<Slot> slots;
  std::vector<TensorPlace> beside;
  std::vector<std::int64_t> widths;            ///< of each of these, `StateWriter::widths`
  std::vector<at::Tensor> tensors;             ///< sent separately
  std::vector<core::extend::StateFact> facts;  ///< not sent
  bool divisible = true;                       ///< not sent; `Elements::divisible`
  std::vector<std::int64_t> whole;             ///< not sent; the sizes of its elements

  template <class Archive>
  void serialize(Archive& archive) {
    archive(place, samples, not_recorded, slots, beside, widths);
  }
  std::int64_t bytes() const;
  std::int64_t bytes_of_elements() const;
};

/// The tensors share memory with the portion. `elements_beside`: all tensors of elements are among them.
/// `only`: the portion's one sink, if it is not there. Passes on exceptions of saving a state.
Parcel packed(const Portion& portion, bool elements_beside = false, const core::Sink* only = nullptr);
/// A portion without id, with sinks like `blank`. Takes over the tensors. Passes on exceptions of loading.
Portion unpacked(Parcel parcel, const core::Sink* blank);
/// A portion from a part of the state, or from joined parts.
Portion unpacked(Parcel parcel, const core::Sink* blank, const Elements& elements);
/// The parcel of a part: the bytes of all, and its elements of the tensors, which share memory.
Parcel part_of(const Parcel& parcel, const Elements& elements);
/// A tensor for the place.
at::Tensor room_for(const TensorPlace& place);

/// The parcels as one text, without their tensors.
std::string encoded(const std::vector<Parcel>& parcels);
/// Throws `LinkError` if `text` is damaged. The parcels have no tensors yet.
std::vector<Parcel> decoded(const std::string& text);

/// The parcels without their tensors, as a verdict; or an error, and whether its reason is a lost rank.
std::string message_of(const std::vector<Parcel>& parcels, const std::string& error, bool lost);
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
