#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/storage/recording.hpp>

#include "commands.hpp"
#include "film.hpp"
#include "options/option_checks.hpp"
#include "options/recorder_options.hpp"
#include "panels.hpp"
#include "subscribe.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/message_text.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools::stream {
namespace {

namespace fs = std::filesystem;
using views::stream::Reader;
using views::stream::WhenFull;

constexpr char kVideoExamples[] = R"(
Draws what a program publishes, as it comes, or the samples of a recording: the modules side by side, one picture for each
forward pass or sample. A tensor [C, H, W] is C maps, of a batch [N, C, H, W] those of one sample (--pick), [H, W] is one
map, unless it is more than eight times as long as wide; any other is a histogram that grows with time. Values of one sign are drawn in viridis, of both signs from blue over
white at 0 to red; NaN is magenta, an infinity orange. Each module has its own range of colours, which grows and never
shrinks (in a recording it is known from the beginning), unless --range fixes one for all.

--save FILE.mp4 (.mkv without loss, .webm, .gif) needs the program ffmpeg. A video in mp4 can be played up to where
either program was killed. Any other name is a folder of numbered PNG files, which need no ffmpeg; without ffmpeg,
FILE.mp4 becomes the folder FILE.

A name of an existing file or folder is a recording, any other a stream. A stream is read without the program waiting,
unless --wait is given. Ends when the program ends, after --count pictures, or by Ctrl-C; if the program was killed, or the
connection to it was lost, it says so, and the pictures drawn before are kept.

Examples:
  torchtap video resnet --names layer1 --save layer1.mp4 --hz 10
  torchtap video maps/ --names 'conv*' --every 10 --save maps.mp4
  torchtap video resnet --names 'fc,layer4' --save pictures/ --size 640x360 --count 100

Exit status: 0; 1 if there was nothing to draw; 2 on errors.)";

struct VideoOptions {
  Asked asked;
  std::string save;
  bool overwrite = false;
  bool wait = false;
  double fps = 20;
  std::string size = "1280x720";
  std::string range;
  std::int64_t count = 0;
  PanelOptions panels;
};

/// A number, and where it ends.
double number_at(const std::string& text, std::size_t from, std::size_t& end) {
  char* stop = nullptr;
  const double value = std::strtod(text.c_str() + from, &stop);
  end = static_cast<std::size_t>(stop - text.c_str());
  return value;
}

void understand(VideoOptions& options) {
  std::size_t end = 0;
  const double width = number_at(options.size, 0, end);
  const bool crossed = end != 0 && end < options.size.size() && options.size[end] == 'x';
  std::size_t last = 0;
  const double height = crossed ? number_at(options.size, end + 1, last) : 0;
  TORCH_CHECK_VALUE(
      last == options.size.size() && width >= 64 && height >= 64 && width <= 8192 && height <= 8192,
      "--size ", options.size, " is no size of a picture; expected WIDTHxHEIGHT from 64x64 to 8192x8192.");
  options.panels.width = static_cast<std::size_t>(width) / 2 * 2;  // which the encoders need
  options.panels.height = static_cast<std::size_t>(height) / 2 * 2;
  if (options.range.empty()) return;
  const double low = number_at(options.range, 0, end);
  TORCH_CHECK_VALUE(end != 0 && end < options.range.size() && options.range[end] == ':', "--range ",
                    options.range, " is no range; expected LOW:HIGH, such as -1:1.");
  const double high = number_at(options.range, end + 1, last);
  TORCH_CHECK_VALUE(last == options.range.size(), "--range ", options.range,
                    " is no range; expected LOW:HIGH, such as -1:1.");
  options.panels.range = pictures::Range(low, high);
}

/// The receiver of the pictures. Checks that nothing is there.
class Target {
 public:
  explicit Target(const VideoOptions& options)
      : options_(options), place_(options.save), video_(is_video_name(place_)) {
    if (video_ && !has_ffmpeg()) {
      place_ = fs::path(place_).replace_extension().string();
      video_ = false;
      std::cerr << "torchtap: ffmpeg is not installed (apt install ffmpeg); the pictures go to " << place_
                << "/.\n";
    }
    std::error_code error;
    const bool taken = fs::exists(place_, error) && (video_ || !fs::is_empty(place_, error));
    tools::check_free(place_, options.overwrite);
    TORCH_CHECK_VALUE(!taken || !video_ || fs::is_regular_file(place_, error), "\"", place_,
                      "\" is no file that a video could replace.");
    if (taken && !video_) remove_pictures();
  }

  void add(const pictures::Image& image) {
    if (film_ == nullptr) {
      film_ = video_ ? make_video(place_, image.width, image.height, options_.fps) : make_folder(place_);
    }
    film_->add(image);
    ++count_;
  }
  void finish() {
    if (film_ != nullptr) film_->finish();
  }
  std::int64_t count() const { return count_; }
  std::string place() const { return film_->place(); }

 private:
  /// Former pictures, so that none of them stays behind new ones; nothing else.
  void remove_pictures() const {
    for (const auto& entry : fs::directory_iterator(place_)) {
      const std::string name = entry.path().filename().string();
      const bool numbered = name.size() == 10 && name.find_first_not_of("0123456789") == 6;
      if (numbered && entry.path().extension() == ".png") fs::remove(entry.path());
    }
  }

  const VideoOptions& options_;
  std::string place_;
  bool video_;
  std::unique_ptr<Film> film_;
  std::int64_t count_ = 0;
};

std::string note_of(const std::string& form, std::int64_t sample) {
  return form + "   sample " + std::to_string(sample);
}

/// A recording: sample i of each module in picture i.
void film_recording(const VideoOptions& options, Panels& panels, Target& target,
                    const tools::Interrupt& interrupt) {
  const storage::Recording recording = storage::load(options.asked.name);
  const auto matches = [&](const storage::RecordedEntry& entry) {
    const auto& globs = options.asked.names;
    if (entry.samples() == 0 || !entry.reduction().empty()) return false;
    bool kind = options.asked.what.empty();
    for (const auto& word : options.asked.what) {
      for (const auto& known : tools::kKindWords)
        kind = kind || (word == known.word && entry.kind() == recorders::name_of(known.kind));
    }
    return kind && (globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
                      return base::matches_glob(glob, entry.path());
                    }));
  };
  struct Shown {
    std::string title;
    storage::SampleRange samples;
    storage::SampleRange::Iterator next;
  };
  std::vector<Shown> shown;
  for (const auto& entry : recording) {
    if (matches(entry)) shown.push_back({entry.path(), entry.each_tensor(), {}});
  }
  TORCH_CHECK_VALUE(
      !shown.empty(), "\"", options.asked.name,
      "\" has no samples of such modules; torchtap show lists what it has. Results of reductions cannot be "
      "filmed.");
  for (auto& one : shown) {
    if (options.panels.range.empty()) {
      for (const at::Tensor& sample : one.samples) {
        if (sample.defined()) panels.prepare(one.title, sample);
        if (interrupt.signal() != 0) return;
      }
    }
    one.next = one.samples.begin();
  }
  for (std::int64_t i = 0; interrupt.signal() == 0; ++i) {
    bool any = false;
    for (auto& one : shown) {
      if (one.next == one.samples.end()) continue;
      any = true;
      const at::Tensor& sample = *one.next;
      if (i % options.asked.every == 0 && sample.defined())
        panels.add(one.title, sample, note_of(tools::shape_to_text(sample.sizes().vec()), i));
      ++one.next;
    }
    if (!any || (options.count != 0 && target.count() >= options.count)) return;
    if (i % options.asked.every == 0)
      target.add(panels.draw(options.asked.name + "   sample " + std::to_string(i)));
  }
}

/// A stream: a picture whenever the first module comes again. Returns why it broke off, if it did.
std::string film_stream(const VideoOptions& options, Panels& panels, Target& target,
                        const tools::Interrupt& interrupt) {
  Reader reader = open(options.asked, "torchtap video", options.wait ? WhenFull::wait : WhenFull::skip);
  std::string text;
  std::string first;
  std::int64_t without_data = 0;
  const auto enough = [&] { return options.count != 0 && target.count() >= options.count; };
  while (interrupt.signal() == 0 && !reader.ended() && !enough()) {
    const auto frame = reader.next(std::chrono::milliseconds(100));
    if (!frame.has_value()) continue;
    if (frame->without_data) {
      ++without_data;
      continue;
    }
    const std::string title = title_of(*frame);
    if (first.empty()) first = title + "\n";
    if (frame->call == 0 && first == title + "\n" && panels.is_new(title)) target.add(panels.draw(text));
    const at::Tensor tensor = views::stream::to_tensor(*frame);
    if (!reader.whole()) continue;  // overwritten meanwhile
    panels.add(title, tensor, note_of(form_of(*frame), static_cast<std::int64_t>(frame->sample)));
    text = options.asked.name + (frame->text.empty() ? "" : "   " + std::string(frame->text));
  }
  if (!panels.empty() && !enough()) target.add(panels.draw(text));
  if (reader.missed() != 0)
    std::cerr << "torchtap: missed " << tools::counted(reader.missed(), "frame")
              << (reader.demoted() ? ": the publisher waited too long and went on.\n" : ".\n");
  if (without_data != 0)
    std::cerr << "torchtap: " << tools::counted(without_data, "tensor") << " could not be sent.\n";
  return reader.broken();
}

/// Returns the signal that ended it; 0 if there was none.
int video(VideoOptions& options) {
  understand(options);
  Panels panels(options.panels);
  Target target(options);
  const tools::Interrupt interrupt;
  std::error_code error;
  std::string broken;
  if (fs::exists(options.asked.name, error)) {
    film_recording(options, panels, target, interrupt);
  } else {
    broken = film_stream(options, panels, target, interrupt);
  }
  target.finish();
  if (panels.left_out() != 0)
    std::cerr << "torchtap: left out "
              << tools::counted(static_cast<std::int64_t>(panels.left_out()), "module")
              << " that came after the first picture; choose with --names.\n";
  if (target.count() != 0)
    std::cout << tools::counted(target.count(), "picture") << " in " << target.place() << '\n';
  TORCH_CHECK(broken.empty(), broken, ".");
  if (interrupt.signal() == 0 && target.count() == 0) throw CLI::RuntimeError(1);
  return interrupt.signal();
}

}  // namespace

void add_video(CLI::App& app) {
  auto options = std::make_shared<VideoOptions>();
  CLI::App* command = app.add_subcommand("video", "Film what a program publishes, or a recording");
  command->footer(kVideoExamples);
  add_subscription(*command, options->asked);
  command->add_option("-o,--save", options->save, "FILE.mp4, .mkv, .webm or .gif, or a folder for PNG files")
      ->required()
      ->check(tools::place());
  tools::add_overwrite(*command, options->overwrite);
  command->add_option("--fps", options->fps, "Pictures a second when it is played")
      ->check(CLI::Range(0.1, 240.0))
      ->capture_default_str();
  command->add_option("--size", options->size, "WIDTHxHEIGHT in pixels")->capture_default_str();
  command->add_option("--range", options->range, "LOW:HIGH, the values of the first and last colour");
  command->add_option("--picture", options->panels.picture, "auto; histogram: also of tensors that have maps")
      ->check(CLI::IsMember({"auto", "histogram"}))
      ->capture_default_str();
  command->add_option("--pick", options->panels.pick, "Which sample of a batch is drawn")
      ->transform(tools::whole_number(0))
      ->capture_default_str();
  command->add_option("--count", options->count, "End after this many pictures")
      ->transform(tools::whole_number(1));
  command->add_flag("--wait", options->wait, "Let the program wait rather than miss tensors");
  command->callback([options] {
    if (const int signal = video(*options)) {
      std::cout << std::flush;
      tools::end_by(signal);
    }
  });
}

}  // namespace torchtap::tools::stream
