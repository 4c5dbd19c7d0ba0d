// Puts parcels into packets, and takes them out.
#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <torchtap/distributed/detail/packet.hpp>

namespace torchtap::distributed::detail {
namespace {

constexpr std::int64_t kSmall = 1 << 20;  // bytes: copying them costs less than further messages
constexpr std::int64_t kAligned = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

at::Tensor bytes(std::int64_t size) {
  return at::empty({size}, at::TensorOptions().dtype(at::kByte));
}

/// A tensor in `memory`, which it keeps, from `begin` on.
at::Tensor placed(const at::Tensor& memory, std::int64_t begin, const TensorPlace& place) {
  const auto options = at::TensorOptions().dtype(static_cast<c10::ScalarType>(place.dtype));
  const auto size =
      c10::multiply_integers(place.sizes) * static_cast<std::int64_t>(options.dtype().itemsize());
  if (begin + size > memory.numel()) throw damaged("a state");
  return at::from_blob(
      memory.data_ptr<std::uint8_t>() + begin, place.sizes, [memory](void*) {}, options);
}

}  // namespace

Packet::Packet(const std::vector<Parcel>& parcels, const std::string& error, bool lost) {
  const std::string text = message_of(parcels, error, lost);
  const auto length = static_cast<std::int64_t>(text.size());
  std::vector<at::Tensor> tensors;
  std::int64_t behind = 0;
  if (error.empty()) {
    for (const Parcel& parcel : parcels) {
      for (const at::Tensor& tensor : parcel.tensors) {
        behind += aligned(static_cast<std::int64_t>(tensor.nbytes()));
        tensors.push_back(bytes_of(tensor));
      }
    }
  }
  const bool small = behind <= kSmall;
  if (!small) behind = 0;
  const at::Tensor first = bytes(aligned(length) + behind);
  auto* to = first.data_ptr<std::uint8_t>();
  const auto put = [&to](const void* data, std::int64_t size) {
    std::memcpy(to, data, static_cast<std::size_t>(size));
    std::fill(to + size, to + aligned(size), std::uint8_t{0});
    to += aligned(size);
  };
  put(text.data(), length);
  messages_ = {bytes_of(std::make_shared<std::string>(encoded_numbers({length, behind}))), first};
  for (const at::Tensor& tensor : tensors) {
    if (!small) {
      messages_.push_back(tensor);
    } else if (tensor.numel() != 0) {
      put(tensor.data_ptr(), tensor.numel());
    }
  }
}

Transport::Pending Packet::begin_send(Transport& data, int to, Milliseconds timeout) const {
  std::vector<Transport::Pending> pending;
  pending.reserve(messages_.size());
  for (const at::Tensor& message : messages_) pending.push_back(data.send(message, to, timeout));
  return [pending = std::move(pending)] { finish(pending); };
}

Incoming::Incoming(Transport& data, int from, const Patience& patience)
    : data_(data),
      from_(from),
      patience_(patience),
      sizes_(std::make_shared<std::string>(16, '\0')),
      arrives_(data.recv(bytes_of(sizes_), from, patience.timeout * patience.steps)) {}

void Incoming::open() {
  arrives_();
  const std::vector<std::int64_t> sizes = decoded_lengths(*sizes_);
  length_ = sizes[0];
  text_ = bytes(aligned(length_) + sizes[1]);
  arrives_ = data_.recv(text_, from_, patience_.timeout);
}

Verdict Incoming::read(const Places& places) {
  arrives_();
  const auto* const text = reinterpret_cast<const char*>(text_.data_ptr<std::uint8_t>());
  Verdict verdict = Verdict::decoded({text, static_cast<std::size_t>(length_)});
  if (!verdict.error.empty()) return verdict;
  parcels_ = decoded(verdict.more);
  pending_.resize(parcels_.size());
  std::int64_t at = aligned(length_);
  const bool small = at < text_.numel();
  for (std::size_t i = 0; i < parcels_.size(); ++i) {
    Parcel& parcel = parcels_[i];
    std::vector<at::Tensor> to;
    if (places) to = places(parcel);
    for (std::size_t k = 0; k < parcel.beside.size(); ++k) {
      const TensorPlace& place = parcel.beside[k];
      if (!small) {
        parcel.tensors.push_back(places ? to[k] : room_for(place));
        pending_[i].push_back(data_.recv(bytes_of(parcel.tensors.back()), from_, patience_.timeout));
        continue;
      }
      const at::Tensor here = placed(text_, at, place);
      at += aligned(static_cast<std::int64_t>(here.nbytes()));
      if (places) to[k].copy_(here.view_as(to[k]));
      parcel.tensors.push_back(places ? to[k] : here);
    }
  }
  return verdict;
}

Parcel Incoming::take(std::size_t number) {
  finish(pending_[number]);
  pending_[number].clear();
  return std::move(parcels_[number]);
}

}  // namespace torchtap::distributed::detail
