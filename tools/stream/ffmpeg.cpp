#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include <torchtap/base/error.hpp>

#include "../terminal.hpp"
#include "film.hpp"

namespace torchtap::stream {
namespace {

using pictures::Image;

std::string ending_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::size_t slash = path.rfind('/');
  return dot == std::string::npos || (slash != std::string::npos && slash > dot) ? "" : path.substr(dot);
}

/// How ffmpeg is to write a file, by the ending of its name.
std::vector<std::string> encoding_of(const std::string& ending) {
  if (ending == ".gif")
    return {"-vf", "split[a][b];[a]palettegen=stats_mode=diff[p];[b][p]paletteuse=dither=none", "-f", "gif"};
  if (ending == ".webm")
    return {"-c:v",      "libvpx-vp9", "-b:v",      "0", "-crf",     "30",      "-row-mt", "1",
            "-deadline", "realtime",   "-cpu-used", "8", "-pix_fmt", "yuv420p", "-f",      "webm"};
  if (ending == ".mkv") return {"-c:v", "ffv1", "-f", "matroska"};
  // Fragments: what is on disk can be played, whenever the writer is killed.
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

class Video final : public Film {
 public:
  Video(const std::string& path, std::size_t width, std::size_t height, double fps)
      : path_(path), width_(width), height_(height) {
    int to_child[2];
    int from_child[2];
    TORCH_CHECK(::pipe2(to_child, O_CLOEXEC) == 0 && ::pipe2(from_child, O_CLOEXEC) == 0,
                "cannot make a pipe to ffmpeg: ", std::strerror(errno), ".");
    std::vector<std::string> words{
        "ffmpeg",     "-hide_banner",      "-loglevel", "error",  "-nostdin", "-y",
        "-f",         "rawvideo",          "-pix_fmt",  "rgb24",  "-s",       c10::str(width, "x", height),
        "-framerate", tools::to_text(fps), "-i",        "pipe:0", "-an"};
    for (auto& word : encoding_of(ending_of(path))) words.push_back(std::move(word));
    words.push_back("file:" + path);
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    child_ = ::fork();
    TORCH_CHECK(child_ >= 0, "cannot start ffmpeg: ", std::strerror(errno), ".");
    if (child_ == 0) {
      ::setpgid(0, 0);  // Ctrl-C is ours: ffmpeg ends when its pictures do
      ::dup2(to_child[0], STDIN_FILENO);
      ::dup2(from_child[1], STDERR_FILENO);
      ::execvp("ffmpeg", arguments.data());
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    pictures_ = to_child[1];
    errors_ = from_child[0];
    ::fcntl(pictures_, F_SETFL, O_NONBLOCK);
    ::fcntl(errors_, F_SETFL, O_NONBLOCK);
    former_ = std::signal(SIGPIPE, SIG_IGN);
  }
  ~Video() override {
    if (child_ > 0) end();
    std::signal(SIGPIPE, former_);
  }

  void add(const Image& image) override {
    TORCH_CHECK(image.width == width_ && image.height == height_, "torchtap video: a picture is ",
                image.width, " x ", image.height, " where the video is ", width_, " x ", height_,
                "; save modules whose size changes to files of their own (--names).");
    const std::uint8_t* at = image.rgb.data();
    std::size_t left = image.rgb.size();
    while (left != 0) {
      hear();
      // Neither waits for the other: it may say more than a pipe holds while it takes one picture.
      std::array<pollfd, 2> polled{{{pictures_, POLLOUT, 0}, {errors_, POLLIN, 0}}};
      ::poll(polled.data(), heard_all_ ? 1 : 2, -1);
      const ssize_t written = ::write(pictures_, at, left);
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written <= 0) {
        const int status = end();
        TORCH_CHECK(false, "ffmpeg ended", how(status), " while it wrote \"", path_,
                    "\"; the video ends there.", said_.empty() ? "" : " It said: ", said_);
      }
      at += written;
      left -= static_cast<std::size_t>(written);
    }
  }

  void finish() override {
    const int status = end();
    TORCH_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "ffmpeg ended", how(status),
                " when it finished \"", path_, "\".", said_.empty() ? "" : " It said: ", said_);
  }
  std::string place() const override { return path_; }

 private:
  static std::string how(int status) {
    if (WIFSIGNALED(status)) return c10::str(" by signal ", WTERMSIG(status));
    return c10::str(" with status ", WEXITSTATUS(status));
  }
  /// Takes what ffmpeg says, so that it never waits for that.
  void hear() {
    char text[1024];
    ssize_t size = 0;
    for (; (size = ::read(errors_, text, sizeof text)) > 0;) {
      if (said_.size() < 4096) said_.append(text, static_cast<std::size_t>(size));
    }
    heard_all_ = size == 0;
  }
  int end() {
    if (child_ <= 0) return 0;
    ::close(pictures_);
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(child_, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
      pollfd polled{errors_, POLLIN, 0};
      ::poll(&polled, 1, 10);
      hear();
      if ((polled.revents & POLLHUP) != 0) ::usleep(1000);
    }
    hear();
    ::close(errors_);
    child_ = -1;
    while (!said_.empty() && said_.back() == '\n') said_.pop_back();
    return status;
  }

  std::string path_;
  std::size_t width_, height_;
  pid_t child_ = -1;
  int pictures_ = -1;
  int errors_ = -1;
  bool heard_all_ = false;  // it has closed its messages
  std::string said_;
  void (*former_)(int) = SIG_DFL;
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

}  // namespace torchtap::stream
