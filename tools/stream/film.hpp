#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "pictures/image.hpp"

/// The receivers of a video's frames.
namespace torchtap::tools::stream {

/// Takes pictures of one size.
class Film {
 public:
  Film() = default;
  Film(const Film&) = delete;
  Film& operator=(const Film&) = delete;
  virtual ~Film() = default;
  /// Throws `c10::Error` if the picture cannot be written.
  virtual void add(const pictures::Image& image) = 0;
  /// Throws `c10::Error` if the film could not be finished.
  virtual void finish() = 0;
  /// Its place: a file or a folder.
  virtual std::string place() const = 0;
};

/// Whether the program ffmpeg can be run.
bool has_ffmpeg();
/// Whether a file name has the ending of a video that ffmpeg makes: .mp4, .mkv, .webm, .gif.
bool is_video_name(const std::string& path);

/// A video, by a child process of ffmpeg, which ends by itself when this process is killed. A video in mp4
/// can be played up to where either was killed.
std::unique_ptr<Film> make_video(const std::string& path, std::size_t width, std::size_t height, double fps);
/// A folder with 000000.png, 000001.png, …
std::unique_ptr<Film> make_folder(const std::string& path);

}  // namespace torchtap::tools::stream
