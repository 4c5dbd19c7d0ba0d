#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

/// Reads an idx file of bytes, plain or gzip: `[N, 28, 28]` images or `[N]` labels, uint8. Reads at most the
/// first `most` entries. Throws `c10::ValueError` that names the file and the problem.
at::Tensor read_idx(const std::string& path, std::int64_t most);

/// Images `[N, 28, 28]` as the classifier takes them: `[N, 1, 28, 28]` float32, of mean 0 and deviation 1
/// over the training set of Fashion-MNIST.
at::Tensor as_input(const at::Tensor& images);

/// Images to classify.
struct Dataset {
  at::Tensor images;  ///< `[N, 1, 28, 28]`, see `as_input`
  at::Tensor labels;  ///< `[N]` int64

  std::int64_t size() const { return labels.size(0); }
};

/// The first `most` training images of Fashion-MNIST in `folder`, or the first test images.
Dataset read_training_set(const std::string& folder, std::int64_t most);
Dataset read_test_set(const std::string& folder, std::int64_t most);
