#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

/// Reads an idx file of bytes, plain or gzip: `[N, 28, 28]` images or `[N]` labels, uint8. Only the first
/// `most` entries, if there are that many. Throws `c10::ValueError` naming the file and what is wrong with
/// it.
at::Tensor read_idx(const std::string& path, std::int64_t most);

/// Images to classify.
struct Dataset {
  at::Tensor images;  ///< `[N, 1, 28, 28]` float32, mean 0 and deviation 1 over the training set
  at::Tensor labels;  ///< `[N]` int64

  std::int64_t size() const { return labels.size(0); }
};

/// The first `most` images of Fashion-MNIST in `folder`: those for training, or those for testing.
Dataset read_training_set(const std::string& folder, std::int64_t most);
Dataset read_test_set(const std::string& folder, std::int64_t most);
