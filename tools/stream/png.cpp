#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/write_file.hpp>

#include "film.hpp"

namespace torchtap::tools::stream {
namespace {

using pictures::Image;

void put_number(std::string& to, std::size_t value) {  // big-endian
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift & 255);
}

void put_chunk(std::string& to, const std::string& kind, const std::string& data) {
  put_number(to, data.size());
  const std::string body = kind + data;
  to += body;
  put_number(to, ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
}

/// PNG (ISO 15948) of 8 bits a colour, without filters.
std::string png_of(const Image& image) {
  std::string rows;
  for (std::size_t y = 0; y < image.height; ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(image.at(0, y)), 3 * image.width);
  }
  uLongf size = ::compressBound(rows.size());
  std::string packed(size, '\0');
  const int status = ::compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                                 reinterpret_cast<const Bytef*>(rows.data()), rows.size(), 6);
  TORCH_CHECK(status == Z_OK, "zlib cannot compress a picture: status ", status, ".");
  packed.resize(size);
  std::string header;
  put_number(header, image.width);
  put_number(header, image.height);
  header += std::string("\x08\x02\x00\x00\x00", 5);
  std::string png("\x89PNG\r\n\x1a\n");
  put_chunk(png, "IHDR", header);
  put_chunk(png, "IDAT", packed);
  put_chunk(png, "IEND", "");
  return png;
}

class Folder final : public Film {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    TORCH_CHECK(!error, "cannot make the folder \"", path_, "\": ", error.message(), ".");
  }
  void add(const Image& image) override {
    char name[32];
    std::snprintf(name, sizeof name, "/%06zu.png", count_++);
    base::write_file(
        "video", path_ + name, [&](std::ostream& file) { file << png_of(image); }, /*sync=*/false);
  }
  void finish() override {}
  std::string place() const override { return path_ + "/"; }

 private:
  std::string path_;
  std::size_t count_ = 0;
};

}  // namespace

std::unique_ptr<Film> make_folder(const std::string& path) {
  return std::make_unique<Folder>(path);
}

}  // namespace torchtap::tools::stream
