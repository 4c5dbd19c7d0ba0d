// A stream to a staged file.
#include <filesystem>
#include <ostream>
#include <streambuf>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/detail/staging.hpp>
#include <torchtap/storage/detail/write_file.hpp>

namespace torchtap::storage::detail {
namespace {

/// Passes the bytes of a stream to an `OutputFile`, which has a buffer of its own.
class Buffer : public std::streambuf {
 public:
  explicit Buffer(OutputFile& file) : file_(file) {}

 protected:
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    file_.write(data, static_cast<std::size_t>(size));
    return size;
  }
  int_type overflow(int_type next) override {
    if (traits_type::eq_int_type(next, traits_type::eof())) return traits_type::not_eof(next);
    const char byte = traits_type::to_char_type(next);
    file_.write(&byte, 1);
    return next;
  }

 private:
  OutputFile& file_;
};

}  // namespace

void write_file(const std::string& call, const std::string& path,
                const std::function<void(std::ostream&)>& write) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  TORCH_CHECK_VALUE(folder.empty() || std::filesystem::is_directory(folder), call, ": the directory \"",
                    folder, "\" does not exist. Create it first.");
  const Target target = resolve(call, path, /*mkdir=*/false);
  check_replaceable(call, target.path(), /*overwrite=*/true);
  sweep(target);
  Staging staging(call, target);
  OutputFile file(call, staging.path(), staging.duplicate());
  Buffer buffer(file);
  std::ostream stream(&buffer);
  stream.exceptions(std::ios::badbit);  // rethrows errors of the file
  write(stream);
  file.close(/*sync=*/true);
  staging.put(/*overwrite=*/true, /*sync=*/true);
}

}  // namespace torchtap::storage::detail
