#include "idx.hpp"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <vector>

namespace {

using File = std::unique_ptr<gzFile_s, int (*)(gzFile)>;

void read_bytes(gzFile file, const std::string& path, void* bytes, std::int64_t count) {
  auto* to = static_cast<unsigned char*>(bytes);
  for (std::int64_t done = 0; done < count;) {
    const auto step = static_cast<unsigned>(std::min<std::int64_t>(count - done, 1 << 20));
    const int got = gzread(file, to + done, step);
    int code = 0;
    TORCH_CHECK_VALUE(got > 0, path, ": ", got < 0 ? gzerror(file, &code) : "the file ends too early", ".");
    done += got;
  }
}

std::int64_t read_number(gzFile file, const std::string& path) {
  std::array<unsigned char, 4> bytes;
  read_bytes(file, path, bytes.data(), bytes.size());
  return (std::int64_t{bytes[0]} << 24) | (bytes[1] << 16) | (bytes[2] << 8) | bytes[3];
}

Dataset read_set(const std::string& folder, const std::string& name, std::int64_t most) {
  const auto file = [&](const std::string& rest) {
    const std::string plain = (std::filesystem::path(folder) / (name + rest)).string();
    return std::filesystem::exists(plain) ? plain : plain + ".gz";
  };
  const at::Tensor images = read_idx(file("-images-idx3-ubyte"), most);
  const at::Tensor labels = read_idx(file("-labels-idx1-ubyte"), most);
  TORCH_CHECK_VALUE(images.dim() == 3 && labels.dim() == 1 && images.size(0) == labels.size(0) &&
                        images.size(1) == 28 && images.size(2) == 28,
                    folder, ": images of shape ", images.sizes(), " and labels of shape ", labels.sizes(),
                    " are not those of Fashion-MNIST, [N, 28, 28] and [N].");
  return {as_input(images), labels.to(at::kLong)};
}

}  // namespace

at::Tensor read_idx(const std::string& path, std::int64_t most) {
  TORCH_CHECK_VALUE(std::filesystem::exists(path), path,
                    ": no such file. Debian has it in the package dataset-fashion-mnist; for files "
                    "elsewhere, say --data FOLDER.");
  const File file(gzopen(path.c_str(), "rb"), gzclose);  // also reads plain files
  TORCH_CHECK_VALUE(file != nullptr, path, ": cannot be opened.");
  const std::int64_t magic = read_number(file.get(), path);
  const std::int64_t dimensions = magic & 0xff;
  TORCH_CHECK_VALUE(magic >> 8 == 0x08 && dimensions >= 1 && dimensions <= 4, path,
                    ": not an idx file of bytes; it begins with ", magic, ".");
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < dimensions; ++i) sizes.push_back(read_number(file.get(), path));
  sizes[0] = std::min(sizes[0], most);
  std::int64_t bytes = 1;  // the declared sizes limit the allocation to the size of a valid file
  for (const std::int64_t size : sizes) {
    TORCH_CHECK_VALUE(size > 0 && size <= (std::int64_t{1} << 31) / bytes, path, ": declares the shape ",
                      at::IntArrayRef(sizes), ".");
    bytes *= size;
  }
  at::Tensor tensor = at::empty(sizes, at::kByte);
  read_bytes(file.get(), path, tensor.data_ptr(), bytes);
  return tensor;
}

at::Tensor as_input(const at::Tensor& images) {
  return images.to(at::kFloat).div_(255).sub_(0.2860).div_(0.3530).unsqueeze(1);
}

Dataset read_training_set(const std::string& folder, std::int64_t most) {
  return read_set(folder, "train", most);
}

Dataset read_test_set(const std::string& folder, std::int64_t most) {
  return read_set(folder, "t10k", most);
}
