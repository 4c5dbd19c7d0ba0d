#include <CLI/CLI.hpp>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/spool.hpp>
#include <torchtap/views/text/units.hpp>

#include "commands.hpp"
#include "files/json.hpp"
#include "options/option_checks.hpp"
#include "subscribe.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/message_text.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools::stream {
namespace {

using views::stream::Frame;
using views::stream::Reader;
using views::stream::WhenFull;

constexpr char kTailExamples[] = R"(
Prints a line for each tensor that a program publishes, or with --save writes them all as a recording, which torchtap
show, compare and convert read, and Python. Results of reductions are entries of their own ("fc:mean"), as are further
slots ("lstm#1"). With --save the program waits for the disk if it has to (at most 100 ms at once by default, then
frames are lost); without, or with --skip, it never waits. In either case the number of frames that were missed is exact.

With --frames the tensors themselves go to standard output, for a reader on another machine or for a file; "-" in place of
a name reads them from standard input, here and in watch and video. The program is not waited for.

Ends when the program ends, after --count frames, or by Ctrl-C. If the program was killed, or the connection to it was
lost, it says so and ends with status 2; what came before is saved.

Examples:
  torchtap tail resnet --names 'layer1*' --hz 1
  torchtap tail resnet --save maps/ --every 100 --count 1000
  torchtap tail resnet --json | jq .mean
  ssh host torchtap tail resnet --frames | torchtap watch -

Exit status: 0; 1 if no frame came; 2 on errors.)";

struct TailOptions {
  Asked asked;
  std::string save;
  bool overwrite = false;
  bool append = false;
  bool skip = false;
  bool json = false;
  bool frames = false;
  std::int64_t count = 0;
};

void print_line(const Frame& frame) {
  std::cout << views::text::clock_text(static_cast<std::int64_t>(frame.time_ns)) << "  "
            << tools::printable(shown_title_of(frame)) << "  " << name_of(frame.kind) << ' ' << frame.sample
            << "  " << form_of(frame);
  if (frame.without_data) {
    std::cout << "  no data: " << tools::printable(std::string(frame.text)) << std::endl;
    return;
  }
  const Statistics found = statistics_of(frame);
  std::cout << "  mean " << tools::to_text(found.mean, 4) << "  std " << tools::to_text(found.deviation, 4)
            << "  " << tools::to_text(found.least, 4) << " … " << tools::to_text(found.most, 4);
  if (found.nan != 0) std::cout << "  NaN " << found.nan;
  if (found.infinite != 0) std::cout << "  Inf " << found.infinite;
  if (!frame.text.empty()) std::cout << "  " << tools::printable(std::string(frame.text));
  std::cout << std::endl;
}

void print_json(const Frame& frame) {
  const Statistics found = statistics_of(frame);
  tools::Json line = {
      {"time_ns", frame.time_ns},
      {"path", frame.path},
      {"type", frame.type},
      {"kind", name_of(frame.kind)},
      {"sample", frame.sample},
      {"slot", frame.slot},
      {"result", frame.result},
      {"text", frame.text},
      {"shape", std::vector<std::int64_t>(frame.sizes.begin(), frame.sizes.begin() + frame.dims)},
      {"data", !frame.without_data},
      {"mean", found.mean},
      {"std", found.deviation},
      {"min", found.least},
      {"max", found.most},
      {"nan", found.nan},
      {"inf", found.infinite}};
  std::cout << json::text(line) << std::endl;
}

/// Frames on their way into a recording.
class Saved {
 public:
  explicit Saved(const TailOptions& options)
      : spool_(options.save,
               storage::SpoolOptions().mkdir(true).overwrite(options.overwrite).append(options.append)) {}

  void add(const Frame& frame) {
    if (frame.without_data) {
      ++without_data_;
      return;
    }
    const std::string title = title_of(frame);
    auto& stream = streams_[{title, std::string(name_of(frame.kind))}];
    if (stream == nullptr) {
      stream = &spool_.add({title, {}, std::string(frame.type), std::string(name_of(frame.kind))});
    }
    spool_.admit(*stream, static_cast<std::int64_t>(frame.data_bytes), storage::WhenFull::wait);
    stream->append(views::stream::to_tensor(frame));
  }
  void finish() { spool_.close(); }
  std::size_t entries() const { return streams_.size(); }
  std::int64_t without_data() const { return without_data_; }

 private:
  storage::Spool spool_;
  std::map<std::pair<std::string, std::string>, storage::Spool::Stream*> streams_;
  std::int64_t without_data_ = 0;
};

/// Frames on their way through standard output. The first and the last one say where they come from, and that
/// nothing follows.
class Sent {
 public:
  explicit Sent(const Reader& reader) {
    TORCH_CHECK_VALUE(
        ::isatty(STDOUT_FILENO) == 0,
        "--frames writes bytes, which a terminal cannot show; send them through a pipe, or into a file.");
    say(c10::str("process\t", reader.publisher(), '\n'));
  }

  void add(Frame frame, std::int64_t missed) {
    frame.readers = 0;
    frame.missed = static_cast<std::uint64_t>(missed - missed_);
    missed_ = missed;
    frame.has_checksum = true;
    frame.checksum = base::crc32(0, frame.data, frame.data_bytes);
    write(frame);
  }
  /// `broken` is why the stream breaks off, empty if it does not.
  void finish(const Reader& reader, const std::string& broken) {
    say(c10::str("missed\t", reader.missed(), "\nend\t", broken, '\n'));
  }

 private:
  void say(const std::string& text) {
    Frame frame;
    frame.kind = views::stream::Kind::header;
    frame.without_data = true;
    frame.text = text;
    write(frame);
  }
  void write(const Frame& frame) {
    const std::uint64_t header = views::stream::header_bytes(frame);
    const std::uint64_t behind = views::stream::frame_bytes(frame) - header - frame.data_bytes;
    bytes_.assign(std::max(header, behind), '\0');
    views::stream::write_header(frame, bytes_.data());
    std::cout.write(bytes_.data(), static_cast<std::streamsize>(header));
    std::cout.write(static_cast<const char*>(frame.data), static_cast<std::streamsize>(frame.data_bytes));
    bytes_.assign(behind, '\0');
    std::cout.write(bytes_.data(), static_cast<std::streamsize>(behind)).flush();
  }

  std::string bytes_;
  std::int64_t missed_ = 0;
};

void summarize(const TailOptions& options, const Reader& reader, const Saved* saved, std::int64_t taken) {
  if (saved != nullptr) {
    std::cout << tools::counted(static_cast<std::int64_t>(saved->entries()), "module") << ", "
              << tools::counted(taken - saved->without_data(), "frame") << " in " << options.save << '\n';
    if (saved->without_data() != 0)
      std::cerr << "torchtap: " << tools::counted(saved->without_data(), "tensor") << " could not be sent.\n";
  }
  if (reader.missed() != 0)
    std::cerr << "torchtap: missed " << tools::counted(reader.missed(), "frame")
              << (reader.demoted() ? ": the publisher waited too long and went on.\n" : ".\n");
}

/// Returns the signal that ended it; 0 if there was none.
int tail(const TailOptions& options) {
  const bool waits = !options.save.empty() && !options.skip;
  Reader reader = open(options.asked, "torchtap tail", waits ? WhenFull::wait : WhenFull::skip);
  std::unique_ptr<Saved> saved;
  if (!options.save.empty()) saved = std::make_unique<Saved>(options);
  std::optional<Sent> sent;
  if (options.frames) sent.emplace(reader);
  const tools::Interrupt interrupt;
  std::int64_t taken = 0;
  while (interrupt.signal() == 0 && !reader.ended() && (options.count == 0 || taken < options.count)) {
    const auto frame = reader.next(std::chrono::milliseconds(100));
    if (!frame.has_value()) continue;
    if (saved != nullptr) {
      saved->add(*frame);
    } else if (sent.has_value()) {
      sent->add(*frame, reader.missed());
    } else if (options.json) {
      print_json(*frame);
    } else {
      print_line(*frame);
    }
    ++taken;
    if (!std::cout.good()) break;
  }
  reader.release();
  if (sent.has_value())
    sent->finish(reader, interrupt.signal() == 0 ? reader.broken() : "torchtap tail was stopped");
  if (saved != nullptr) saved->finish();
  summarize(options, reader, saved.get(), taken);
  check_end(reader, saved != nullptr && taken != 0 ? "\"" + options.save + "\" has what came before" : "");
  if (interrupt.signal() == 0 && taken == 0) throw CLI::RuntimeError(1);
  return interrupt.signal();
}

}  // namespace

void add_tail(CLI::App& app) {
  auto options = std::make_shared<TailOptions>();
  CLI::App* command = app.add_subcommand("tail", "Print or save what a program publishes, as it comes");
  command->footer(kTailExamples);
  add_subscription(*command, options->asked);
  auto* save =
      command->add_option("-o,--save", options->save, "Directory of a recording")->check(tools::place());
  auto* overwrite = tools::add_overwrite(*command, options->overwrite)->needs(save);
  command->add_flag("--append", options->append, "Continue an existing recording")
      ->needs(save)
      ->excludes(overwrite);
  command->add_flag("--skip", options->skip, "Miss frames rather than let the program wait")->needs(save);
  command->add_option("--count", options->count, "End after this many frames")
      ->transform(tools::whole_number(1));
  auto* json = command->add_flag("--json", options->json, "Print a JSON object on each line")->excludes(save);
  command->add_flag("--frames", options->frames, "Write the tensors themselves, for a reader elsewhere")
      ->excludes(save)
      ->excludes(json);
  command->callback([options] {
    if (const int signal = tail(*options)) {
      std::cout << std::flush;
      tools::end_by(signal);
    }
  });
}

}  // namespace torchtap::tools::stream
