#pragma once

/// Keeps samples of a device until many are added up in one launch.

#include <c10/core/Stream.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <torchtap/cuda/detail/pages.hpp>
#include <torchtap/hooks/forward.hpp>

namespace torchtap::cuda::detail {

class FoldOnDevice;

/// The number of changes in place of a tensor, which can be asked when the tensor is gone.
class Version {
 public:
  explicit Version(const at::Tensor& tensor);
  /// Whether changes are counted: not those of inference tensors.
  bool known() const noexcept { return counter_.enabled(); }
  bool changed() const { return known() && counter_.current_version() != version_; }

 private:
  c10::VariableVersion counter_{c10::VariableVersion::DISABLED};
  std::uint32_t version_ = 0;
};

/// The samples of a recorder that wait (`RecorderOptions::defer`), those of each stream in one batch. They
/// are added when there are too many bytes, when the forward ends, and before anything is read. A sample that
/// was changed in place meanwhile is left out, and its taker is told. Thread-safe; its lock is taken last.
class Late : public std::enable_shared_from_this<Late> {
 public:
  /// At most `most` bytes wait in a batch.
  explicit Late(std::int64_t most) : most_(most) {}

  /// Has a sample wait that `to` has accepted, or adds it where nothing will end its waiting: in a capture of
  /// which no end of a forward is seen. `forwards` are of the record's root; null if it cannot be hooked.
  void put(Pages& to, const at::Tensor& sample, bool captures, const std::shared_ptr<FoldOnDevice>& taker,
           const hooks::Forwards* forwards);
  /// Tells the taker if a sample is changed before the end of this forward. False if that will not be seen.
  bool watch(const at::Tensor& sample, const std::shared_ptr<FoldOnDevice>& taker,
             const hooks::Forwards* forwards);
  /// Adds all samples that can be added now: not while their stream captures a graph.
  void launch();

 private:
  struct Waiting {
    std::weak_ptr<FoldOnDevice> taker;
    Version version;
  };
  struct Queue {
    c10::Stream stream;
    bool captures;  // samples of a graph
    Pages::Batch batch;
    std::vector<Waiting> samples;
    std::int64_t bytes = 0;
    bool ends = false;  // the end of a forward will launch it
  };
  void launch(Queue& queue);
  bool end_with(const hooks::Forwards* forwards);
  void forward_ended() noexcept;

  const std::int64_t most_;
  std::mutex mutex_;
  std::vector<Queue> queues_;
  std::vector<Waiting> watched_;
};

}  // namespace torchtap::cuda::detail
