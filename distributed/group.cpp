// Bytes between ranks over a process group of c10d.
#include <ATen/Functions.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/distributed/detail/transport.hpp>
#include <torchtap/distributed/group.hpp>

namespace torchtap::distributed {
namespace detail {
namespace {

constexpr std::int64_t kPiece = std::int64_t{8} << 20;  // MPI counts bytes in 32 bits
constexpr int kTag = 0x746170;                          // "tap"

/// Over anything that has the send, recv and broadcast of c10d: its `ProcessGroup` of all versions, its
/// `Backend` of LibTorch 2.
template <class G>
class OverGroup final : public Transport {
 public:
  explicit OverGroup(c10::intrusive_ptr<G> group)
      : Transport(group->getRank(), group->getSize()),
        group_(std::move(group)),
        device_(group_->getBackendName() == "nccl" ? at::kCUDA : at::kCPU) {}

  Pending send(const at::Tensor& bytes, int to, Milliseconds timeout) override {
    return transfer(bytes, timeout, true, false,
                    [this, to](std::vector<at::Tensor>& piece) { return group_->send(piece, to, kTag); });
  }
  Pending recv(const at::Tensor& bytes, int from, Milliseconds timeout) override {
    return transfer(bytes, timeout, false, true,
                    [this, from](std::vector<at::Tensor>& piece) { return group_->recv(piece, from, kTag); });
  }
  Pending broadcast(const at::Tensor& bytes, int root, Milliseconds timeout) override {
    return transfer(bytes, timeout, rank() == root, rank() != root,
                    [this, root](std::vector<at::Tensor>& piece) {
                      c10d::BroadcastOptions options;
                      options.rootRank = root;
                      return group_->broadcast(piece, options);
                    });
  }

 private:
  using Work = decltype(std::declval<G&>().barrier());

  static void wait(const Work& work, Milliseconds timeout) {
    try {
      work->wait(timeout);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw LinkError(text.substr(0, text.find('\n')));
    }
  }

  /// Begins `start` on each piece. A group that takes no tensors on the CPU gets copies, piece after piece.
  template <class Start>
  Pending transfer(const at::Tensor& bytes, Milliseconds timeout, bool reads, bool writes, Start start) {
    if (device_ != at::kCPU) {
      return [this, bytes, timeout, reads, writes, start] { staged(bytes, timeout, reads, writes, start); };
    }
    std::vector<Work> works;
    each_piece(bytes, [&](at::Tensor piece) { works.push_back(begun(piece, start)); });
    return [works = std::move(works), timeout, bytes] {
      for (const Work& work : works) wait(work, timeout);
    };
  }
  template <class Start>
  void staged(const at::Tensor& bytes, Milliseconds timeout, bool reads, bool writes, const Start& start) {
    each_piece(bytes, [&](at::Tensor piece) {
      at::Tensor copy = reads ? piece.to(device_) : at::empty_like(piece, piece.options().device(device_));
      wait(begun(copy, start), timeout);
      if (writes) piece.copy_(copy);
    });
  }
  template <class Start>
  static Work begun(const at::Tensor& piece, const Start& start) {
    std::vector<at::Tensor> tensors{piece};
    try {
      return start(tensors);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw LinkError(text.substr(0, text.find('\n')));
    }
  }
  template <class F>
  static void each_piece(const at::Tensor& bytes, const F& f) {
    for (std::int64_t at = 0; at < bytes.numel(); at += kPiece) {
      f(bytes.narrow(0, at, std::min(kPiece, bytes.numel() - at)));
    }
  }

  c10::intrusive_ptr<G> group_;
  at::Device device_;
};

template <class G>
std::shared_ptr<Links> links_of(const c10::intrusive_ptr<G>& group,
                                const c10::intrusive_ptr<c10d::Store>& store) {
  TORCH_CHECK_VALUE(group, "distributed::Group: the process group is null; make one first, or give a store.");
  auto over = std::make_shared<OverGroup<G>>(group);
  const int rank = over->rank(), size = over->size();
  return std::make_shared<Links>(std::move(over), store, rank, size);
}

}  // namespace
}  // namespace detail

Group::Group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
             const c10::intrusive_ptr<c10d::Store>& store, int)
    : links_(detail::links_of(group, store)) {}
Group::Group(const c10::intrusive_ptr<c10d::Backend>& group, const c10::intrusive_ptr<c10d::Store>& store,
             int)
    : links_(detail::links_of(group, store)) {}
Group::Group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  TORCH_CHECK_VALUE(store, "distributed::Group: the store is null.");
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, "distributed::Group: there is no rank ", rank, " of ", size,
                    "; ranks count from 0.");
  links_ = std::make_shared<detail::Links>(nullptr, store, rank, size);
}

int Group::rank() const noexcept {
  return links_->rank();
}
int Group::size() const noexcept {
  return links_->size();
}

}  // namespace torchtap::distributed
