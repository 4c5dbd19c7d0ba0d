#pragma once

/// Keeps the distributions of up to 512 consecutive blocks of samples, which show how a distribution varies.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/access.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/core/value.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions {

/// Counts all elements of each sample in the bins of `LogHistogram(3)`, with their sums and extrema, and
/// keeps these counts apart for each block: one sample, or, where there were more than `most` samples, 2, 4,
/// 8 … samples in a row. A monitor learns its reference with this; merging appends the other's blocks.
///
/// Samples may have any shape. A tensor on a device other than the CPU is copied, which waits for the device.
/// A block takes about 100 bytes and 2 or 3 for each bin in use.
class TORCHTAP_API Blocks : public SharesPass {
 public:
  /// Throws `c10::ValueError` unless `most` is an even number of at least 2.
  explicit Blocks(std::int64_t most = 512);

  /// Takes a sample of any real or complex dtype (whose parts count as two numbers) and any device in. Throws
  /// `c10::TypeError` for a tensor that is undefined, sparse or quantized; the state is unchanged then.
  void update(const at::Tensor& sample);
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const;
  /// Appends the blocks of `other`. Neighbours are joined until whole blocks of both have as many samples and
  /// there are at most `most` blocks; one that was the last of its part may keep fewer samples. Throws
  /// `c10::ValueError` if `most` differs; the state is unchanged then.
  void merge(const Blocks& other);
  /// Samples.
  std::int64_t count() const { return samples_; }
  /// With B blocks and K bins in use: "samples" [B] int64, "rows" [B] int64 (sizes of dimension 0, summed; 1
  /// for a tensor without dimensions), "low" and "high" [K] float64, ascending, "counts" [B, K] int64,
  /// "zeros", "nan", "negative_infinity", "positive_infinity" [B] int64, "min", "max", "sum", "sum_squares"
  /// [B] float64, of finite elements; extrema are NaN where there are none. Empty before the first sample.
  core::Results results() const;
  /// "Blocks(512)".
  std::string describe() const;
  bool commutative() const { return false; }
  Blocks fresh() const { return Blocks(most_); }

 private:
  friend class cereal::access;
  friend struct core::Access;

  struct TORCHTAP_API Block {
    std::int64_t samples = 0, rows = 0, zeros = 0, nan = 0, negative_infinity = 0, positive_infinity = 0;
    double min = 0, max = 0, sum = 0, sum_squares = 0;
    std::string bins;  // for each two varints: its slot minus the slot of the bin before it, and its count

    void add(const Block& other);
    template <class Archive>
    void serialize(Archive& archive) {
      archive(samples, rows, zeros, nan, negative_infinity, positive_infinity, min, max, sum, sum_squares,
              bins);
    }
  };

  void ask(Pass& pass) const override;
  void check_sample(const Pass& pass) const override;
  void fold(const Pass& pass) override;
  static Block measure(const Pass& pass);
  void join();
  std::string recipe() const { return "Blocks"; }
  template <class Archive>
  void serialize(Archive& archive) {
    core::state_version(archive, "Blocks", 1);
    archive(most_, each_, blocks_);
    if constexpr (Archive::is_loading::value) restored();
  }
  void restored();

  std::int64_t most_, each_ = 1;  // blocks, and the samples of a whole one
  std::int64_t samples_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace torchtap::reductions
