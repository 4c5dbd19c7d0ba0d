// Packs, sends and receives states.
#include <ATen/Functions.h>
#include <sys/mman.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <sstream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/header.hpp>
#include <torchtap/distributed/detail/parcel.hpp>

namespace torchtap::distributed::detail {
namespace {

constexpr double kMost = 0x1p50;  // elements of a tensor; more are damaged

/// Lets the system give a large tensor memory in pages of 2 MiB, which it fills sooner than many small ones.
void in_large_pages(const at::Tensor& tensor) {
#ifdef MADV_HUGEPAGE  // of Linux
  constexpr std::uintptr_t kPage = std::uintptr_t{2} << 20;
  const auto first = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
  const std::uintptr_t begin = (first + kPage - 1) / kPage * kPage,
                       end = (first + tensor.nbytes()) / kPage * kPage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // or not
#endif
}

/// Begins a transfer of each tensor of a parcel.
template <class Begin>
std::vector<Transport::Pending> begun(const Parcel& parcel, const Begin& begin) {
  std::vector<Transport::Pending> pending;
  pending.reserve(parcel.tensors.size());
  for (const at::Tensor& tensor : parcel.tensors) pending.push_back(begin(bytes_of(tensor)));
  return pending;
}

}  // namespace

std::int64_t Parcel::bytes() const {
  std::int64_t bytes = 0;
  for (const Slot& slot : slots) bytes += static_cast<std::int64_t>(slot.bytes.size());
  for (const at::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

at::Tensor room_for(const TensorPlace& place) {
  at::Tensor room =
      at::empty(place.sizes, at::TensorOptions().dtype(static_cast<c10::ScalarType>(place.dtype)));
  in_large_pages(room);
  return room;
}

std::int64_t Parcel::bytes_of_elements() const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (widths[i] != 0) bytes += static_cast<std::int64_t>(tensors[i].nbytes());
  }
  return bytes;
}

Parcel packed(const Portion& portion, bool elements_beside, const core::Sink* only) {
  Parcel parcel;
  parcel.samples = portion.samples;
  parcel.not_recorded = portion.not_recorded;
  const auto pack = [&](const core::Sink* sink, const std::vector<at::Tensor>& samples) {
    Parcel::Slot into;
    std::ostringstream stream;
    StateWriter writer(stream, elements_beside);
    into.reduced = sink != nullptr;
    if (into.reduced) {
      sink->save(writer);
    } else {
      writer(samples);
    }
    into.bytes = stream.str();
    into.tensors = static_cast<std::int64_t>(writer.tensors.size());
    parcel.slots.push_back(std::move(into));
    for (at::Tensor& tensor : writer.tensors) {
      parcel.beside.push_back({static_cast<std::int32_t>(tensor.scalar_type()), 0, tensor.sizes().vec()});
      parcel.tensors.push_back(std::move(tensor));
    }
    parcel.widths.insert(parcel.widths.end(), writer.widths.begin(), writer.widths.end());
    for (auto& fact : writer.facts) parcel.facts.push_back(std::move(fact));
    const auto& whole = writer.elements.whole;
    if (parcel.whole.empty()) parcel.whole = whole;
    parcel.divisible =
        parcel.divisible && writer.elements.divisible && (whole.empty() || whole == parcel.whole);
  };
  if (only != nullptr) pack(only, {});
  for (const auto& slot : portion.slots) pack(slot.sink.get(), slot.samples);
  return parcel;
}

Portion unpacked(Parcel parcel, const core::Sink* blank) {
  return unpacked(std::move(parcel), blank, {Elements::Use::none, {}, 0, 0});
}

Parcel part_of(const Parcel& parcel, const Elements& elements) {
  Parcel part = parcel;
  for (std::size_t i = 0; i < part.tensors.size(); ++i) {
    const std::int64_t width = part.widths[i];
    if (width == 0) continue;
    part.tensors[i] =
        part.tensors[i].view({elements.count(), width}).narrow(0, elements.begin, elements.length);
    part.beside[i].sizes = {elements.length, width};
  }
  return part;
}

Portion unpacked(Parcel parcel, const core::Sink* blank, const Elements& elements) {
  Portion portion;
  portion.samples = parcel.samples;
  portion.not_recorded = std::move(parcel.not_recorded);
  auto next = parcel.tensors.begin();
  for (auto& slot : parcel.slots) {
    const auto end = next + static_cast<std::ptrdiff_t>(slot.tensors);
    std::istringstream stream(slot.bytes);
    StateReader reader(stream, {std::make_move_iterator(next), std::make_move_iterator(end)}, elements);
    next = end;
    Portion::Slot into;
    if (slot.reduced) {
      TORCH_CHECK_VALUE(blank != nullptr,
                        "its samples are reduced there and kept here; use the same reduction on all ranks.");
      into.sink = blank->clone();
      into.sink->load(reader);
    } else {
      reader(into.samples);
    }
    TORCH_CHECK_VALUE(reader.finished(),
                      "its state has too many tensors: its bytes were damaged on the way; merge again.");
    portion.slots.push_back(std::move(into));
  }
  return portion;
}

std::string encoded(const std::vector<Parcel>& parcels) {
  std::ostringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(parcels);
  }
  return stream.str();
}

std::vector<Parcel> decoded(const std::string& text) {
  std::vector<Parcel> parcels;
  try {
    std::istringstream stream(text);
    core::InputArchive archive(stream);
    archive(parcels);
  } catch (const std::exception&) {
    throw damaged("a state");
  }
  for (Parcel& parcel : parcels) {
    for (const auto& place : parcel.beside) {
      bool sound = place.dtype >= 0 && place.dtype < static_cast<std::int32_t>(c10::ScalarType::NumOptions);
      double elements = 1;
      for (const auto size : place.sizes) {
        sound = sound && size >= 0;
        elements *= static_cast<double>(size);
      }
      if (!sound || elements > kMost) throw damaged("the form of a tensor");
    }
    std::int64_t tensors = 0;
    for (const auto& slot : parcel.slots) tensors += slot.tensors < 0 ? -1 : slot.tensors;
    if (tensors != static_cast<std::int64_t>(parcel.beside.size()) ||
        parcel.widths.size() != parcel.beside.size()) {
      throw damaged("a state");
    }
  }
  return parcels;
}

std::string message_of(const std::vector<Parcel>& parcels, const std::string& error, bool lost) {
  Verdict message;
  message.error = error;
  message.lost = lost;
  if (error.empty()) message.more = encoded(parcels);
  return message.encoded();
}

void send(Transport& data, std::vector<Parcel> parcels, int to, const std::string& error, bool lost,
          const Patience& patience) {
  // The receiver may have to wait for other ranks first.
  const Milliseconds timeout = patience.timeout * patience.steps;
  data.send_message(message_of(parcels, error, lost), to, timeout);
  if (!error.empty()) return;
  std::vector<std::vector<Transport::Pending>> pending;
  pending.reserve(parcels.size());
  for (const Parcel& parcel : parcels) {
    pending.push_back(begun(parcel, [&](const at::Tensor& bytes) { return data.send(bytes, to, timeout); }));
  }
  for (std::size_t i = 0; i < parcels.size(); ++i) {
    finish(pending[i]);
    pending[i].clear();
    parcels[i].tensors.clear();
  }
}

Verdict recv(Transport& data, int from, const Patience& patience, const std::function<void(Parcel)>& each) {
  Verdict message = Verdict::decoded(data.recv_message(from, patience));
  if (!message.error.empty()) return message;
  std::vector<Parcel> parcels = decoded(message.more);
  std::exception_ptr failed;
  std::vector<Transport::Pending> pending, next;
  const auto begin = [&](std::size_t i) {
    for (const auto& place : parcels[i].beside) parcels[i].tensors.push_back(room_for(place));
    return begun(parcels[i],
                 [&](const at::Tensor& bytes) { return data.recv(bytes, from, patience.timeout); });
  };
  if (!parcels.empty()) next = begin(0);
  for (std::size_t i = 0; i < parcels.size(); ++i) {
    pending = std::exchange(next, {});
    if (i + 1 < parcels.size()) next = begin(i + 1);
    finish(pending);
    pending.clear();
    Parcel arrived = std::move(parcels[i]);
    if (failed != nullptr) continue;
    try {
      each(std::move(arrived));
    } catch (...) {
      failed = std::current_exception();
    }
  }
  if (failed != nullptr) std::rethrow_exception(failed);
  return message;
}

std::vector<std::int64_t> sizes_of(const std::string& text, const std::vector<Parcel>& parcels) {
  std::vector<std::int64_t> sizes{static_cast<std::int64_t>(text.size())};
  for (const Parcel& parcel : parcels) {
    for (const at::Tensor& tensor : parcel.tensors)
      sizes.push_back(static_cast<std::int64_t>(tensor.nbytes()));
  }
  return sizes;
}

void hand_out(Transport& data, std::string text, const std::vector<Parcel>& parcels, Milliseconds timeout) {
  std::vector<Transport::Pending> pending;
  pending.push_back(
      data.broadcast(bytes_of(std::make_shared<std::string>(std::move(text))), data.rank(), timeout));
  for (const Parcel& parcel : parcels) {
    for (const at::Tensor& tensor : parcel.tensors) {
      pending.push_back(data.broadcast(bytes_of(tensor), data.rank(), timeout));
    }
  }
  finish(pending);
}

std::vector<Parcel> take_in(Transport& data, int root, const std::vector<std::int64_t>& sizes,
                            Milliseconds timeout) {
  if (sizes.empty()) throw damaged("the list of sizes of the result");
  const auto text = std::make_shared<std::string>(static_cast<std::size_t>(sizes[0]), '\0');
  data.broadcast(bytes_of(text), root, timeout)();
  std::vector<Parcel> parcels = decoded(*text);
  std::vector<Transport::Pending> pending;
  for (Parcel& parcel : parcels) {
    for (const auto& place : parcel.beside) {
      parcel.tensors.push_back(room_for(place));
      pending.push_back(data.broadcast(bytes_of(parcel.tensors.back()), root, timeout));
    }
  }
  finish(pending);
  return parcels;
}

void pass_by(Transport& data, int root, const std::vector<std::int64_t>& sizes, Milliseconds timeout) {
  for (const std::int64_t size : sizes) {
    data.broadcast(at::empty({size}, at::TensorOptions().dtype(at::kByte)), root, timeout)();
  }
}

}  // namespace torchtap::distributed::detail
