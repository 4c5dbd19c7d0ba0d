// Files whose size is bounded, and how the optimizer's steps are measured.
#include <boost/test/unit_test.hpp>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>

#include <torchtap/views/explorer/detail/column_bytes.hpp>
#include <torchtap/views/explorer/detail/file_run.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>
#include <torchtap/views/explorer/detail/parameter_updates.hpp>
#include <torchtap/views/explorer/detail/run_file_thin.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(thin)

using namespace support;
namespace parts = explorer::detail;
namespace watch = torchtap::views::watch;
using torchtap_test::says;
using torchtap_test::TemporaryDirectory;

namespace {

struct Totals {
  std::uint64_t count = 0, nan = 0, inf = 0, zeros = 0;
  std::map<std::uint32_t, std::uint64_t> bins;
  std::int64_t first = -1, last = -1, columns = 0;

  void add(const watch::Column& column) {
    count += column.count;
    nan += column.nan;
    inf += column.posinf + column.neginf;
    zeros += column.zeros;
    for (const auto& [bin, number] : watch::unpack(column.bins, column.n_bins)) bins[bin] += number;
    if (first < 0) first = column.first_step;
    BOOST_REQUIRE(column.first_step > last);
    last = column.last_step;
    ++columns;
  }
  bool operator==(const Totals& other) const {
    return std::tie(count, nan, inf, zeros, bins, first, last) ==
           std::tie(other.count, other.nan, other.inf, other.zeros, other.bins, other.first, other.last);
  }
};

std::vector<Totals> totals_of(const std::string& path) {
  parts::FileRun run(path, 1 << 20);
  std::vector<Totals> result;
  run.each_series([&](const parts::Series& series) {
    Totals totals;
    for (const auto& column : series.columns()) totals.add(column);
    result.push_back(totals);
  });
  return result;
}

/// Trains the same net with the same data.
void train(explorer::Explorer& watched, int steps, int broken_at) {
  torch::manual_seed(0);
  nn::Sequential net(nn::Linear(16, 32), nn::ReLU(), nn::Linear(32, 4));
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  watched.attach(*net);
  for (int step = 0; step < steps; ++step) {
    at::Tensor x = torch::randn({8, 16});
    if (step == broken_at) x[0][0] = std::nan("");
    optimizer.zero_grad();
    const at::Tensor loss = net->forward(x).pow(2).mean();
    loss.backward();
    if (step != broken_at) optimizer.step();
    watched.scalar("loss", loss);
  }
  check_no_errors(watched);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_bounded_file_stays_small_and_loses_no_count) {
  constexpr std::int64_t most = 400000;
  constexpr int steps = 600, broken_at = 333;
  const TemporaryDirectory directory;
  const std::string all = directory / "all", some = directory / "some";
  {
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(all));
    train(watched, steps, broken_at);
  }
  std::uintmax_t largest = 0;
  {
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(some).disk(most));
    parts::FileRun follower(some);
    torch::manual_seed(0);
    nn::Sequential net(nn::Linear(16, 32), nn::ReLU(), nn::Linear(32, 4));
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    watched.attach(*net);
    int followed = 0;
    for (int step = 0; step < steps; ++step) {
      at::Tensor x = torch::randn({8, 16});
      if (step == broken_at) x[0][0] = std::nan("");
      optimizer.zero_grad();
      const at::Tensor loss = net->forward(x).pow(2).mean();
      loss.backward();
      largest = std::max(largest, std::filesystem::file_size(parts::run_file_path(some)));
      if (step != broken_at) optimizer.step();
      watched.scalar("loss", loss);
      if (step % 7 != 0) continue;
      const std::uint64_t before = follower.sequence();
      follower.refresh();  // also over the files that took the place of this one
      BOOST_REQUIRE(follower.steps().second == step);
      BOOST_REQUIRE(follower.steps().first == 0);
      BOOST_REQUIRE(follower.info().state == "running");
      BOOST_REQUIRE(follower.sequence() > before);
      ++followed;
    }
    BOOST_TEST(followed > 80);
    check_no_errors(watched);
    // What the page has of the two is the same: the same statistics at the last step, the same first NaN.
    follower.refresh();
    BOOST_TEST(
        (parts::health_json(follower) == parts::health_json(*parts::models_of(watched).first()->run())));
  }
  const auto unbounded = std::filesystem::file_size(parts::run_file_path(all));
  BOOST_TEST(unbounded > 5U * most);  // several times over, so it was thinned more than once
  BOOST_TEST(largest < static_cast<std::uintmax_t>(most) * 11 / 10);
  for (const auto& file : std::filesystem::directory_iterator(some + "/explorer"))
    BOOST_TEST(file.path().filename() == "run.tapx");
  const auto expected = totals_of(all), found = totals_of(some);
  BOOST_REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    BOOST_TEST((found[i] == expected[i]), "series " << i);
    BOOST_TEST(found[i].columns < expected[i].columns / 4);
    BOOST_TEST(found[i].columns >= 10);
  }
  // Parts of it, too.
  parts::FileRun whole(all), thinned(some);
  BOOST_TEST(thinned.info().state == "finished");
  BOOST_TEST((parts::health_json(thinned) == parts::health_json(whole)));
  BOOST_TEST(thinned.graph(parts::Mode::train).json == whole.graph(parts::Mode::train).json);
  BOOST_TEST(thinned.steps().first == 0);
  BOOST_TEST(thinned.steps().second == steps - 1);
  const auto loss = thinned.scalars(-1).at("loss"), every = whole.scalars(-1).at("loss");
  BOOST_TEST(loss.size() < every.size());
  BOOST_TEST(loss.size() > 10U);
  BOOST_TEST(loss.front().first == 0);
  BOOST_TEST(loss.back().first == steps - 1);
  for (const auto& [step, value] : loss) {
    const double right = every[static_cast<std::size_t>(step)].second;
    BOOST_TEST((value == right || (std::isnan(value) && std::isnan(right))));
  }
}

BOOST_AUTO_TEST_CASE(viewers_of_a_file_that_was_replaced_get_all_of_its_columns_again) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(path).disk(200000));
  parts::FileRun run(path);
  train(watched, 20, -1);
  run.refresh();
  const std::uint64_t seen = run.sequence();
  parts::RunFileReader file(path);
  parts::models_of(watched).first()->run()->reach(20);
  {
    torch::manual_seed(0);
    explorer::Explorer other(explorer::ExplorerOptions().every(1).save(directory / "other").disk(200000));
    train(other, 200, -1);
  }
  // As the writer does it.
  std::filesystem::rename(parts::run_file_path(directory / "other"), parts::run_file_path(path));
  BOOST_TEST(file.replaced());
  run.refresh();
  BOOST_TEST(run.steps().second == 199);
  const std::string bytes = parts::columns_bytes(run, {{0}, seen});
  parts::Bytes sent(bytes);
  sent.text(12);
  BOOST_TEST(sent.get<std::uint32_t>() == 1U);
  sent.text(12);
  BOOST_TEST((sent.get<std::uint32_t>() & 0x80000000U) != 0U);  // replaces all
  BOOST_TEST(sent.get<std::int64_t>() == 0);                    // the first step
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_replaced_goes_on_as_it_was) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(path).disk(100000));
  torch::manual_seed(0);
  nn::Sequential net(nn::Linear(16, 32), nn::ReLU(), nn::Linear(32, 4));
  watched.attach(*net);
  rlimit files{};
  BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  rlimit none = files;
  none.rlim_cur = 0;  // no file can be opened
  BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  for (int step = 0; step < 100; ++step) net->forward(torch::randn({8, 16})).pow(2).mean().backward();
  BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  BOOST_REQUIRE(watched.errors().size() == 1U);
  BOOST_TEST(watched.errors().front().find("run.tapx") != std::string::npos);
  BOOST_TEST(parts::FileRun(path).steps().second == 99);
  BOOST_CHECK_EXCEPTION(explorer::ExplorerOptions().disk(-1), c10::ValueError, says({"disk", "-1"}));
}

BOOST_AUTO_TEST_CASE(the_optimizers_steps_are_measured) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  torch::manual_seed(0);
  nn::Sequential net(nn::Linear(16, 32), nn::ReLU(), nn::Linear(32, 4));
  nn::Linear large(8, 50000);  // more than are compared
  net->push_back("large", nn::Linear(4, 8));
  net->push_back("wide", large);
  BOOST_REQUIRE(large->weight.numel() > parts::Updates::most_elements);
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  std::map<std::string, double> expected;
  torchtap::json::Json series, health;
  {
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(path));
    watched.attach(*net);
    for (int step = 0; step < 30; ++step) {
      // The last ten steps are far too large, those of one weight alone; one weight has stopped.
      optimizer.zero_grad();
      net->forward(torch::randn({8, 16})).pow(2).mean().backward();
      std::map<std::string, at::Tensor> before;
      for (const auto& one : net->named_parameters()) before[one.key()] = one.value().detach().clone();
      optimizer.step();
      const torch::NoGradGuard no_grad;
      if (step >= 20) net->named_parameters()["0.weight"].mul_(1.5);
      if (step >= 2) net->named_parameters()["2.weight"].copy_(before["2.weight"]);
      for (const auto& one : net->named_parameters()) {
        const at::Tensor& was = before[one.key()];
        expected[one.key()] = ((one.value() - was).norm() / was.norm()).item<double>();
      }
    }
    net->eval();
    const torch::NoGradGuard no_grad;
    net->forward(torch::randn({8, 16}));  // after the last step
    series = parts::series_json(*parts::models_of(watched).first()->run());
    health = parts::health_json(*parts::models_of(watched).first()->run());
    int weights = 0;
    const auto names = parts::models_of(watched).first()->run()->call_names();
    parts::models_of(watched).first()->run()->each_series([&](const parts::Series& one) {
      if (one.key().what != parts::What::parameter || one.name() != "weight") {
        BOOST_TEST(one.updates.last().empty());
        return;
      }
      ++weights;
      BOOST_REQUIRE(one.updates.last().size() == parts::UpdateHistory::most);
      const std::string name = names.at(one.key().call).path + ".weight";
      const double right = expected.at(name);
      // All elements of most, and a part of one.
      BOOST_TEST(one.updates.last().back() == right,
                 boost::test_tools::tolerance(name[0] == 'w' ? 0.02 : 1e-5));
      using Since = std::map<std::string, std::int64_t>;
      BOOST_TEST(
          (one.updates.since() == (name == "0.weight"   ? Since{{"update_ratio", 24}}
                                   : name == "2.weight" ? Since{{"unchanged_tensor", 4}, {"update_ratio", 6}}
                                                        : Since{})));
    });
    BOOST_TEST(weights == 4);
    BOOST_TEST(health.dump().find("\"kind\":\"update_ratio\"") != std::string::npos);
    check_no_errors(watched);
  }
  // The file has them, too; and the last ones, and since when rules hold, when it has been thinned.
  parts::FileRun run(path);
  BOOST_TEST((parts::series_json(run) == series));
  BOOST_TEST((parts::health_json(run) == health));
  std::uint64_t size = 0;
  ::close(parts::thin(path + "/explorer/run.tapx", 1, size));
  parts::FileRun thinned(path);
  std::vector<std::pair<std::vector<double>, std::map<std::string, std::int64_t>>> all, left;
  run.each_series([&](const auto& one) { all.emplace_back(one.updates.last(), one.updates.since()); });
  thinned.each_series([&](const auto& one) { left.emplace_back(one.updates.last(), one.updates.since()); });
  BOOST_TEST((all == left));
}

BOOST_AUTO_TEST_CASE(backwards_without_a_step_of_the_optimizer_say_nothing) {
  torch::manual_seed(0);
  nn::Linear net(6, 5);
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  for (int step = 0; step < 3; ++step) net->forward(torch::randn({4, 6})).pow(2).mean().backward();
  parts::models_of(watched).first()->run()->each_series(
      [](const parts::Series& series) { BOOST_TEST(series.updates.last().empty()); });
}

BOOST_AUTO_TEST_SUITE_END()
