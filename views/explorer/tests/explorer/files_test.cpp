// Runs in files: read back, followed while they are written, after a kill, and damaged.
#include <boost/test/unit_test.hpp>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <torchtap/views/explorer/detail/column_bytes.hpp>
#include <torchtap/views/explorer/detail/file_run.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(files)

using namespace support;
namespace parts = explorer::detail;
using torchtap_test::says;
using torchtap_test::TemporaryDirectory;

namespace {

void train(nn::Sequential& net, explorer::Explorer& watched, int steps) {
  for (int step = 0; step < steps; ++step) {
    const at::Tensor loss = net->forward(torch::randn({4, 6})).pow(2).mean();
    loss.backward();
    watched.scalar("loss", loss);
  }
}

nn::Sequential small_net() {
  torch::manual_seed(0);
  return nn::Sequential(nn::Linear(6, 5), nn::ReLU(), nn::Linear(5, 3));
}

/// Files of this process may become no larger: what is written beyond that fails, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t room) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{room, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

/// All that the page can ask of a run.
std::vector<torchtap::json::Json> everything(parts::Run& run) {
  return {run.graph(parts::Mode::train).json, parts::series_json(run), parts::scalars_json(run, -1),
          parts::health_json(run)};
}

/// The bytes of all columns, without the sequence of the series, which counts changes.
std::map<std::int32_t, std::string> columns_of(parts::Run& run) {
  std::map<std::int32_t, std::string> result;
  std::int32_t number = 0;
  run.each_series([&](const parts::Series& series) {
    std::string& bytes = result[number++];
    for (const auto& column : series.columns()) parts::put_column(bytes, column);
  });
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_finished_run_is_read_back_whole) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run1";
  nn::Sequential net = small_net();
  std::vector<torchtap::json::Json> written;
  std::map<std::int32_t, std::string> columns;
  {
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).columns(8).save(path));
    watched.attach(*net);
    train(net, watched, 30);
    written = everything(*parts::models_of(watched).first()->run());
    columns = columns_of(*parts::models_of(watched).first()->run());
    check_no_errors(watched);
  }
  parts::FileRun run(path, 8);
  BOOST_TEST(run.info().state == "finished");
  BOOST_TEST(run.info().name == "run1");
  BOOST_TEST(run.steps().second == 29);
  const auto read = everything(run);
  for (std::size_t i = 0; i < read.size(); ++i) BOOST_TEST((read[i] == written[i]));
  BOOST_TEST((columns_of(run) == columns));
  // All of the steps are in the file.
  const auto zoomed = run.zoom(0, 10, 19);
  BOOST_REQUIRE(zoomed.size() == 10U);
  for (std::size_t i = 0; i < 10; ++i) {
    BOOST_TEST(zoomed[i].first_step == static_cast<std::int64_t>(10 + i));
    BOOST_TEST(zoomed[i].count == 24U);
  }
}

BOOST_AUTO_TEST_CASE(a_run_is_followed_while_it_is_written) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  nn::Sequential net = small_net();
  auto watched = std::make_unique<explorer::Explorer>(explorer::ExplorerOptions().every(1).save(path));
  parts::FileRun run(path);
  BOOST_TEST(run.info().state == "running");
  watched->attach(*net);
  for (int round = 1; round <= 3; ++round) {
    train(net, *watched, 4);
    run.refresh();
    BOOST_TEST(run.steps().second == 4 * round - 1);
    BOOST_TEST((columns_of(run) == columns_of(*parts::models_of(*watched).first()->run())));
    BOOST_TEST(run.has(parts::Mode::train));
  }
  watched.reset();
  run.refresh();
  BOOST_TEST(run.info().state == "finished");
}

/// Runs in a process of its own, which the test below kills.
BOOST_AUTO_TEST_CASE(writes_until_it_is_killed, *boost::unit_test::disabled()) {
  const char* const path = std::getenv("TORCHTAP_TEST_RUN");
  BOOST_REQUIRE(path != nullptr);
  nn::Sequential net = small_net();
  explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(path));
  watched.attach(*net);
  for (;;) train(net, watched, 1);
}

/// How many forwards the graph in the file knows; 0 if it has none.
std::int64_t counted_forwards(parts::FileRun& run) {
  const std::string graph = run.graph(parts::Mode::train).json, counted = "\"forwards\":";
  const auto at = graph.find(counted);
  return at == std::string::npos ? 0 : std::stoll(graph.substr(at + counted.size()));
}

BOOST_AUTO_TEST_CASE(what_was_written_before_a_kill_is_read) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TORCHTAP_TEST_RUN", path.c_str(), 1);
    ::execl("/proc/self/exe", "test", "--run_test=files/writes_until_it_is_killed", "--log_level=nothing",
            "--report_level=no", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  BOOST_REQUIRE(child > 0);
  const std::string file = parts::run_file_path(path);
  // A graph is written again after a time that its writing has taken fifty times, on a busy machine some
  // seconds.
  std::error_code missing;
  bool recent = false;
  for (int i = 0; i < 6000 && !recent; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!(std::filesystem::file_size(file, missing) > 200000) || missing) continue;
    parts::FileRun running(path);
    recent = 2 * counted_forwards(running) > running.steps().second;
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  BOOST_REQUIRE(WIFSIGNALED(status));
  parts::FileRun run(path);
  BOOST_TEST(run.info().state == "crashed");
  BOOST_TEST(run.steps().second > 3);
  BOOST_TEST(run.has(parts::Mode::train));
  // How often calls ran is of not long before.
  BOOST_TEST(4 * counted_forwards(run) > run.steps().second);
  // A tail that was cut off in the middle of a block, wherever, leaves what was complete before.
  const auto size = std::filesystem::file_size(file);
  for (const std::uintmax_t less : {1, 5, 9, 300, 5000}) {
    std::filesystem::resize_file(file, size - less);
    parts::FileRun cut(path);
    BOOST_TEST(cut.steps().second > 3);
    BOOST_TEST(cut.info().state == "crashed");
  }
}

BOOST_AUTO_TEST_CASE(damage_is_an_error_that_says_where) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  {
    nn::Sequential net = small_net();
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(path));
    watched.attach(*net);
    train(net, watched, 5);
  }
  const std::string file = parts::run_file_path(path);
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(file));
  std::vector<std::streamoff> places{size / 10, size / 2, size * 9 / 10, size - 1};
  for (std::streamoff i = 8; i < 21; ++i)
    places.push_back(i);  // the whole head of the first block, and its kind
  for (const std::streamoff at : places) {
    std::fstream changed(file, std::ios::in | std::ios::out | std::ios::binary);
    changed.seekg(at);
    const char before = static_cast<char>(changed.get());
    changed.seekp(at);
    changed.put(static_cast<char>(before ^ 0x10));
    changed.flush();
    BOOST_TEST_CONTEXT("byte " << at)
    BOOST_CHECK_EXCEPTION(parts::FileRun{path}, c10::ValueError, says({"is damaged at byte", "truncate"}));
    changed.seekp(at);
    changed.put(before);
  }
  BOOST_TEST(parts::FileRun(path).info().state == "finished");
  std::ofstream(file, std::ios::binary | std::ios::trunc) << "something else";
  BOOST_CHECK_EXCEPTION(parts::FileRun{path}, c10::ValueError, says({"is no run"}));
  BOOST_CHECK_EXCEPTION(parts::FileRun{directory / "none"}, c10::Error,
                        says({"none", "ExplorerOptions().save()"}));
}

/// A file of the first format, as tests/formats/write/views.cpp made it.
BOOST_AUTO_TEST_CASE(the_first_format_is_read) {
  parts::FileRun run(TORCHTAP_TEST_FORMATS "/1/run", 8);
  BOOST_TEST(run.info().state == "finished");
  BOOST_TEST(run.info().program == "write_view_formats");
  BOOST_TEST(run.steps().second == 1);
  BOOST_TEST(torchtap::json::text(parts::scalars_json(run, -1)).find("40.5") != std::string::npos);
  const auto input = run.zoom(0, 0, 0);
  BOOST_REQUIRE(input.size() == 1U);
  BOOST_TEST(input[0].count == 4U);
  BOOST_TEST(input[0].min == -4);
  BOOST_TEST(input[0].sum == 2);
}

BOOST_AUTO_TEST_CASE(a_newer_format_is_told_from_damage) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run", file = parts::run_file_path(path);
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  const auto written = [&](const std::string& head, const std::string& info) {
    std::string bytes = head;
    parts::put_block(bytes, parts::BlockKind::info, info);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  };
  const std::string good = R"({"format": 1, "name": "n", "mantissa_bits": 3})";
  written(parts::run_file_head(), good);
  BOOST_TEST(parts::FileRun(path, 8).info().name == "n");
  std::string newer = parts::run_file_head();
  newer[4] = 3;
  const auto refused = [&](const std::vector<std::string>& words) {
    BOOST_CHECK_EXCEPTION(parts::FileRun(path, 8), c10::ValueError, says(words));
  };
  written(newer, good);
  refused({file, "written by a newer torchtap (format 3; this one reads up to 1)", "update torchtap"});
  written(parts::run_file_head(), R"({"format": 2, "name": "n", "mantissa_bits": 3})");
  refused({file, "written by a newer torchtap (format 2; this one reads up to 1)"});
  written("TAPY" + newer.substr(4), good);
  refused({file, "no run of an explorer"});
}

/// Blocks whose checksum is right, whatever is in them, as a program that means harm would write them.
BOOST_AUTO_TEST_CASE(any_content_is_read_or_refused) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run", file = parts::run_file_path(path);
  {
    nn::Sequential net = small_net();
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(path));
    watched.attach(*net);
    train(net, watched, 3);
  }
  std::vector<std::pair<parts::BlockKind, std::string>> blocks;
  parts::RunFileReader(path).read(
      [&](parts::BlockKind kind, const std::string& body) { blocks.emplace_back(kind, body); });
  BOOST_REQUIRE(blocks.size() > 50U);
  std::mt19937 random(5);
  int read = 0, refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = parts::run_file_head();
    const std::size_t victim = random() % blocks.size();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      auto [kind, body] = blocks[i];
      if (i == victim) {
        for (unsigned changes = 1 + random() % 4; changes-- > 0 && !body.empty();)
          body[random() % body.size()] = static_cast<char>(random());
        if (round % 5 == 0) body.resize(random() % (body.size() + 1));
        if (round % 7 == 0) body += std::string(random() % 40, static_cast<char>(random()));
        if (round % 11 == 0) kind = blocks[random() % blocks.size()].first;
      }
      parts::put_block(bytes, kind, body);
    }
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    try {
      parts::FileRun run(path, 8);
      everything(run);
      parts::runs_json({});
      parts::columns_bytes(run, {});
      run.zoom(0, 0, 100);
      ++read;
    } catch (const c10::Error&) {
      ++refused;
    }
  }
  BOOST_TEST(read > 50);
  BOOST_TEST(refused > 50);
}

BOOST_AUTO_TEST_CASE(a_run_is_never_written_over) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  { explorer::Explorer watched(explorer::ExplorerOptions().save(path)); }
  BOOST_CHECK_EXCEPTION(explorer::Explorer(explorer::ExplorerOptions().save(path)), c10::ValueError,
                        says({"holds a run already", "another directory"}));
  std::ofstream(directory / "file") << "x";
  BOOST_CHECK_EXCEPTION(explorer::Explorer(explorer::ExplorerOptions().save(directory / "file")), c10::Error,
                        says({"cannot make the directory"}));
}

// The file ends there, and neither the program nor what the page shows.
BOOST_AUTO_TEST_CASE(a_full_disk_is_told_and_ends_the_file_alone) {
  const TemporaryDirectory directory;
  for (const int room : {0, 10'000, 500'000}) {
    const std::string path = directory / std::to_string(room);
    std::vector<std::string> told;
    const FullDisk disk(static_cast<rlim_t>(room));
    const explorer::Explorer* self = nullptr;
    explorer::Explorer watched(
        explorer::ExplorerOptions().every(1).save(path).on_error([&](const std::string& text) {
          told.push_back(text);
          if (self != nullptr) BOOST_TEST(self->errors().size() == 1U);  // it may ask, also out of step()
        }));
    self = &watched;
    nn::Sequential net = small_net();
    watched.attach(*net);
    train(net, watched, 5);
    // More than is gathered before it is written, outside of any forward.
    BOOST_CHECK_NO_THROW(watched.scalar(std::string(std::size_t{1} << 20, 'x'), 1));
    for (int step = 10; step < 13; ++step) BOOST_CHECK_NO_THROW(watched.step(step));
    train(net, watched, 3);
    BOOST_TEST_REQUIRE(told.size() == 1U);
    BOOST_TEST(watched.errors() == told, boost::test_tools::per_element());
    BOOST_TEST(told[0].find("writing " + path + "/explorer/run.tapx failed: File too large") !=
               std::string::npos);
    BOOST_TEST(parts::models_of(watched).first()->run()->scalars(-1).at("loss").size() == 6U);
    if (room > 0) BOOST_TEST(parts::FileRun(path).steps().second <= 4);  // what was written is whole
  }
}

// The page gets the graph as it is.
BOOST_AUTO_TEST_CASE(a_graph_that_is_no_json_object_is_an_error) {
  const TemporaryDirectory directory;
  int number = 0;
  const auto written = [&](const std::string& json) {
    const std::string path = directory / ("run" + std::to_string(++number));
    parts::Run::GraphText text;
    text.json = json;
    text.version = 1;
    parts::RunFileWriter writer(path, {});
    writer.graph(parts::Mode::train, text);
    writer.flush();
    return path;
  };
  BOOST_TEST(parts::FileRun(written("{\"calls\": [], \"name\": \"\\u0000\"}\n")).has(parts::Mode::train));
  for (const std::string& json :
       {std::string("{\"calls\": []}\0]", 15), std::string("{}\0", 3), std::string("[1]"),
        std::string("{\"calls\": "), std::string("{} {}"), std::string("{\"a\": NaN}")}) {
    const std::string path = written(json);
    BOOST_CHECK_EXCEPTION(parts::FileRun{path}, c10::ValueError, says({"run.tapx", "no JSON object"}));
  }
}

BOOST_AUTO_TEST_SUITE_END()
