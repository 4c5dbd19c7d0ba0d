// A model that is ill in several ways: whoever looks at it says the same of it.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/json/json.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/parse.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/save.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>
#include <torchtap/views/explorer/detail/watched_models.hpp>
#include <torchtap/views/explorer/explorer.hpp>
#include <torchtap/views/report/report.hpp>

#include "tests/support.hpp"
#include "zoo/sick.hpp"

namespace {

using torchtap::json::Json;
namespace recorders = torchtap::recorders;
namespace reductions = torchtap::reductions;
namespace views = torchtap::views;
using torchtap_test::TemporaryDirectory;

/// Paths, each with a rule that holds there.
using Found = std::set<std::pair<std::string, std::string>>;

Found right(bool nan) {
  Found found{{"dead", "dead_relu"},
              {"gate", "saturated"},
              {"burst", "exploding_gradient"},
              {"fade", "vanishing_gradient"}};
  if (nan) {
    for (const char* path : {"", "quiet", "burst"}) found.emplace(path, "nonfinite");
  }
  return found;
}

std::string text_of(const Found& found) {
  std::string text;
  for (const auto& [path, rule] : found) text += "\n  " + path + " " + rule;
  return text;
}

/// The model, and what it is given.
struct Case {
  explicit Case(bool nan) {
    torch::manual_seed(1);
    model = zoo::Sick(zoo::SickOptions().nan(nan));
    x = torch::randn({32, 64});
  }
  void check(const Found& found, bool nan) const { BOOST_TEST((found == right(nan)), text_of(found)); }

  zoo::Sick model{nullptr};
  at::Tensor x;
};

/// What the command prints, whose exit status is one of `statuses`.
Json printed(const std::string& arguments, std::set<int> statuses) {
  std::FILE* const pipe = ::popen((std::string("'") + TORCHTAP_TEST_COMMAND + "' " + arguments).c_str(), "r");
  BOOST_REQUIRE(pipe != nullptr);
  std::string text;
  std::array<char, 4096> block{};
  for (std::size_t size = 0; (size = std::fread(block.data(), 1, block.size(), pipe)) > 0;)
    text.append(block.data(), size);
  const int status = ::pclose(pipe);
  BOOST_REQUIRE(statuses.count(WEXITSTATUS(status)) == 1U);
  return torchtap::json::parse(text);
}

void add_marks(const views::report::ModuleRow& row, Found& found) {
  for (const std::string& mark : row.marks) found.emplace(row.path, mark);
  for (const auto& child : row.children) add_marks(child, found);
}

const auto with_and_without_nan = boost::unit_test::data::make({false, true});

}  // namespace

BOOST_AUTO_TEST_SUITE(one_verdict)

BOOST_DATA_TEST_CASE(report, with_and_without_nan, nan) {
  Case sick(nan);
  views::report::Report report(*sick.model);
  for (int repeat = 0; repeat < 2; ++repeat) {
    auto recording = report.record();
    const auto loss = sick.model->forward(sick.x).sum();
    recording.phase(views::report::Phase::backward);
    sick.model->zero_grad();
    loss.backward();
  }
  Found found;
  add_marks(views::report::from_json(views::report::json(report.results())).root, found);
  sick.check(found, nan);
}

BOOST_DATA_TEST_CASE(explorer, with_and_without_nan, nan) {
  namespace parts = views::explorer::detail;
  Case sick(nan);
  views::explorer::Explorer watched(views::explorer::ExplorerOptions().every(1));
  watched.attach(*sick.model);
  for (int step = 0; step < 3; ++step) {
    sick.model->zero_grad();
    sick.model->forward(sick.x).sum().backward();
  }
  auto& run = *parts::models_of(watched).first()->run();
  const auto names = run.call_names();
  const Json health = parts::health_json(run);
  Found found;
  for (const auto& mark : health["marks"]) {
    found.emplace(names.at(mark["call"].get<int>()).path, mark["kind"].get<std::string>());
    BOOST_TEST(mark["since"] == 0);
    BOOST_TEST(mark["sentence"] != "");
  }
  sick.check(found, nan);
}

/// The command, of what recorders kept, and of what they reduced.
BOOST_DATA_TEST_CASE(command, with_and_without_nan* boost::unit_test::data::make({false, true}), nan,
                     reduced) {
  Case sick(nan);
  recorders::RecorderOptions options;
  if (reduced) {
    options.reduction(
        reductions::parse("moments,count,log_histogram,min,max", reductions::ParseOptions().over_all(true)));
  }
  recorders::ForwardOutput outputs(options);
  recorders::BackwardOutput gradients(options);
  outputs.attach(*sick.model);
  gradients.attach(*sick.model, torchtap::selectors::leaves());
  for (int step = 0; step < 2; ++step) {
    sick.model->zero_grad();
    sick.model->forward(sick.x).sum().backward();
  }
  const TemporaryDirectory folder;
  outputs.save(folder / "outputs", torchtap::storage::SaveOptions().mkdir(true));
  gradients.save(folder / "gradients", torchtap::storage::SaveOptions().mkdir(true));
  Found checked, shown;
  for (const char* name : {"outputs", "gradients"}) {
    const std::string recording = "'" + (folder / name) + "'";
    const Json check = printed("check --json " + recording, {1});
    for (const auto& finding : check["findings"])
      checked.emplace(finding["path"].get<std::string>(), finding["rule"].get<std::string>());
    if (!reduced) continue;  // only statistics have marks
    const Json show = printed("show --json " + recording, {0});
    for (const auto& entry : show["entries"]) {
      for (const auto& mark : entry["marks"])
        shown.emplace(entry["path"].get<std::string>(), mark.get<std::string>());
    }
  }
  // Only samples that were kept have channels, of which `quiet` passes 3.
  if (!reduced) BOOST_TEST(checked.erase({"quiet", "dead_relu"}) == 1U);
  sick.check(checked, nan);
  if (reduced) sick.check(shown, nan);
}

BOOST_AUTO_TEST_SUITE_END()
