#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include <torchtap/views/program/program.hpp>

#include "film.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools::stream {
namespace {

using pictures::Image;
namespace program = views::program;

std::string ending_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::size_t slash = path.rfind('/');
  return dot == std::string::npos || (slash != std::string::npos && slash > dot) ? "" : path.substr(dot);
}

/// ffmpeg's options for writing a file, by the ending of its name.
std::vector<std::string> encoding_of(const std::string& ending) {
  if (ending == ".gif")
    return {"-vf", "split[a][b];[a]palettegen=stats_mode=diff[p];[b][p]paletteuse=dither=none", "-f", "gif"};
  if (ending == ".webm")
    return {"-c:v",      "libvpx-vp9", "-b:v",      "0", "-crf",     "30",      "-row-mt", "1",
            "-deadline", "realtime",   "-cpu-used", "8", "-pix_fmt", "yuv420p", "-f",      "webm"};
  if (ending == ".mkv") return {"-c:v", "ffv1", "-f", "matroska"};
  // Fragments can be played as far as they are on disk, whenever the writer is killed.
  return {"-c:v",
          "libx264",
          "-preset",
          "veryfast",
          "-crf",
          "18",
          "-pix_fmt",
          "yuv420p",
          "-g",
          "25",
          "-movflags",
          "+frag_keyframe+empty_moov+default_base_moof",
          "-flush_packets",
          "1",
          "-f",
          "mp4"};
}

/// The pipe from which ffmpeg reads its pictures; while it lives, a reader that is gone is an error of
/// `write`.
class Pipe {
 public:
  Pipe() {
    TORCH_CHECK(::pipe2(ends_, O_CLOEXEC) == 0, "cannot make a pipe to ffmpeg: ", std::strerror(errno), ".");
  }
  ~Pipe() {
    close(0);
    close(1);
    std::signal(SIGPIPE, former_);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int operator[](int end) const { return ends_[end]; }
  void close(int end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
  void (*former_)(int) = std::signal(SIGPIPE, SIG_IGN);
};

class Video final : public Film {
 public:
  Video(const std::string& path, std::size_t width, std::size_t height, double fps)
      : path_(path),
        width_(width),
        height_(height),
        // This process handles Ctrl-C: ffmpeg ends when its pictures do.
        ffmpeg_(command(path, width, height, fps), pictures_[0], messages_.descriptor(),
                messages_.descriptor(), program::Program::CtrlC::is_ours) {
    pictures_.close(0);
    TORCH_CHECK(ffmpeg_.error() == 0, "cannot start ffmpeg: ", std::strerror(ffmpeg_.error()), ".");
  }
  ~Video() override { end(); }

  void add(const Image& image) override {
    TORCH_CHECK(image.width == width_ && image.height == height_, "torchtap video: a picture is ",
                image.width, " x ", image.height, " where the video is ", width_, " x ", height_,
                "; save modules whose size changes to files of their own (--names).");
    const std::uint8_t* at = image.rgb.data();
    for (std::size_t left = image.rgb.size(); left != 0;) {
      const ssize_t written = ::write(pictures_[1], at, left);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        end();
        TORCH_CHECK(false, "ffmpeg ", ffmpeg_.ending(), " while it wrote \"", path_,
                    "\"; the video ends there.", said());
      }
      at += written;
      left -= static_cast<std::size_t>(written);
    }
  }

  void finish() override {
    end();
    TORCH_CHECK(ffmpeg_.status() == 0, "ffmpeg ", ffmpeg_.ending(), " when it finished \"", path_, "\".",
                said());
  }
  std::string place() const override { return path_; }

 private:
  static std::vector<std::string> command(const std::string& path, std::size_t width, std::size_t height,
                                          double fps) {
    std::vector<std::string> words{
        "ffmpeg",     "-hide_banner",      "-loglevel", "error",  "-nostdin", "-y",
        "-f",         "rawvideo",          "-pix_fmt",  "rgb24",  "-s",       c10::str(width, "x", height),
        "-framerate", tools::to_text(fps), "-i",        "pipe:0", "-an"};
    for (auto& word : encoding_of(ending_of(path))) words.push_back(std::move(word));
    words.push_back("file:" + path);
    return words;
  }
  void end() {
    pictures_.close(1);
    if (ffmpeg_.error() == 0) ffmpeg_.wait(std::numeric_limits<double>::infinity());
  }
  std::string said() const {
    std::string text = messages_.text().substr(0, 4096);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.empty() ? "" : " It said: " + text;
  }

  std::string path_;
  std::size_t width_, height_;
  Pipe pictures_;
  program::Scratch messages_{"torchtap video: "};
  program::Program ffmpeg_;
};

}  // namespace

bool has_ffmpeg() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access(((folder.empty() ? "." : folder) + "/ffmpeg").c_str(), X_OK) == 0) return true;
  }
  return false;
}

bool is_video_name(const std::string& path) {
  const std::string ending = ending_of(path);
  return ending == ".mp4" || ending == ".mkv" || ending == ".webm" || ending == ".gif";
}

std::unique_ptr<Film> make_video(const std::string& path, std::size_t width, std::size_t height, double fps) {
  return std::make_unique<Video>(path, width, height, fps);
}

}  // namespace torchtap::tools::stream
