// Messages between ranks, and the links of a group.
#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <charconv>
#include <filesystem>
#include <utility>

#include <torchtap/base/little_endian.hpp>
#include <torchtap/distributed/detail/transport.hpp>

namespace torchtap::distributed::detail {
namespace {

constexpr std::size_t kLength = 8, kFirst = 1024, kBeginning = kFirst - kLength;  // bytes
constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;  // a larger length is damaged

/// Whether this process listens at a port. A `TCPStore` does not show whether this process serves it.
bool listens_at(int port) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename();
    int fd = -1, listens = 0;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    socklen_t length = sizeof listens;
    sockaddr_in6 address{};
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    length = sizeof address;
    // Addresses of both families have the port at the same place.
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
        (address.sin6_family == AF_INET || address.sin6_family == AF_INET6) &&
        ntohs(address.sin6_port) == port) {
      return true;
    }
  }
  return false;
}

bool serves(c10::intrusive_ptr<c10d::Store> store) {
  while (auto* const prefix = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    store = prefix->getUnderlyingStore();
  }
  auto* const tcp = dynamic_cast<c10d::TCPStore*>(store.get());
  return tcp != nullptr && listens_at(tcp->getPort());
}

constexpr const char* kServer = "merges/server";

/// A text as one message of `kFirst` bytes, with its length and its beginning, and another with the rest.
std::vector<at::Tensor> messages_of(const std::string& text) {
  std::string first = encoded_numbers({static_cast<std::int64_t>(text.size())}) + text.substr(0, kBeginning);
  first.resize(kFirst);
  std::vector<at::Tensor> messages{bytes_of(std::make_shared<std::string>(std::move(first)))};
  if (text.size() > kBeginning)
    messages.push_back(bytes_of(std::make_shared<std::string>(text.substr(kBeginning))));
  return messages;
}

}  // namespace

std::string encoded_numbers(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) base::put_number(text, number);
  return text;
}

std::vector<std::int64_t> decoded_numbers(const std::string& text) {
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at + 8 <= text.size(); at += 8)
    numbers.push_back(base::get_number<std::int64_t>(text.data() + at));
  return numbers;
}

std::vector<std::int64_t> decoded_lengths(const std::string& text) {
  std::vector<std::int64_t> lengths = decoded_numbers(text);
  for (const std::int64_t length : lengths) {
    if (static_cast<std::uint64_t>(length) > kLongest) throw damaged("the length of a message");
  }
  return lengths;
}

void finish(const std::vector<Transport::Pending>& pending) {
  for (const auto& each : pending) each();
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), {static_cast<std::int64_t>(tensor.nbytes())}, [tensor](void*) {},
      at::TensorOptions().dtype(at::kByte));
}

at::Tensor bytes_of(const std::shared_ptr<std::string>& text) {
  return at::from_blob(
      text->data(), {static_cast<std::int64_t>(text->size())}, [text](void*) {},
      at::TensorOptions().dtype(at::kByte));
}

void Transport::send_message(const std::string& text, int to, Milliseconds timeout) {
  std::vector<Pending> pending;
  for (const at::Tensor& message : messages_of(text)) pending.push_back(send(message, to, timeout));
  finish(pending);
}

std::string Transport::recv_message(int from, const Patience& patience) {
  const auto first = std::make_shared<std::string>(kFirst, '\0');
  recv(bytes_of(first), from, patience.timeout * patience.steps)();
  const auto length = static_cast<std::size_t>(decoded_lengths(first->substr(0, kLength))[0]);
  std::string text = first->substr(kLength, length);
  if (length <= kBeginning) return text;
  const auto rest = std::make_shared<std::string>(length - kBeginning, '\0');
  recv(bytes_of(rest), from, patience.timeout)();
  return text += *rest;
}

/// Sends to each rank separately: the group's broadcast would fail for all ranks if one is dead.
void Transport::broadcast_message(std::string& text, int root, const Patience& patience) {
  if (rank() != root) {
    text = recv_message(root, patience);
    return;
  }
  const std::vector<at::Tensor> messages = messages_of(text);
  std::vector<Pending> pending;
  for (int to = 0; to < size(); ++to) {
    if (to == root) continue;
    try {
      for (const at::Tensor& message : messages) pending.push_back(send(message, to, patience.timeout));
    } catch (const LinkError&) {  // a dead rank; the others get the text
    }
  }
  for (const Pending& each : pending) {
    try {
      each();
    } catch (const LinkError&) {
    }
  }
}

Links::Links(std::shared_ptr<Transport> group, c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : group_(std::move(group)), store_(std::move(store)), rank_(rank), size_(size) {}

Links::Session Links::open() const {
  Session session;
  if (store_ != nullptr) {
    // Counted in the store, so that each merge has its own prefix with any `Group` object.
    std::int64_t merge = 0;
    try {
      merge = store_->add("merges/" + std::to_string(rank_), 1);
      if (*server_ == -1 && serves(store_)) {
        *server_ = rank_;
        const std::string text = std::to_string(rank_);
        store_->set(kServer, std::vector<std::uint8_t>(text.begin(), text.end()));
      }
    } catch (const std::exception& error) {
      throw LinkError(std::string("the store does not answer: ") + error.what());
    }
    session.roll = std::make_shared<OverStore>(store_, "merge/" + std::to_string(merge), rank_, size_);
    session.control = session.roll;
    session.serves = *server_ == rank_;
  }
  session.data = group_ != nullptr ? group_ : session.control;
  if (session.control == nullptr) session.control = group_;
  session.data->begin();
  return session;
}

int Links::server() const noexcept {
  try {
    if (*server_ == -1 && store_ != nullptr) {
      if (!store_->check({kServer})) return -1;
      const std::vector<std::uint8_t> text = store_->get(kServer);
      *server_ = std::stoi(std::string(text.begin(), text.end()));
    }
  } catch (const std::exception&) {  // the server stays unknown
  }
  return *server_;
}

}  // namespace torchtap::distributed::detail
