// Histories as files and tables.
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <fstream>

#include <torchtap/storage/recording.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(files)

namespace {

using namespace support;
using torchtap_test::says;

trace::History some(const trace::TraceOptions& options = trace::TraceOptions().save(trace::Save::all)) {
  torch::manual_seed(0);
  auto model = nn::Sequential(nn::Linear(4, 4), nn::ReLU(true), nn::BatchNorm1d(4), nn::Linear(4, 2));
  model->eval();
  return trace::log_forward_pass(*model, {torch::rand({3, 4})}, options);
}

BOOST_AUTO_TEST_CASE(a_saved_history_is_the_same_when_loaded) {
  torchtap_test::TemporaryDirectory directory;
  for (const auto& options :
       {trace::TraceOptions().save(trace::Save::all), trace::TraceOptions().save({"relu_1"})}) {
    const auto history = some(options);
    history.save(directory / "history", torchtap::storage::SaveOptions().mkdir(true).overwrite(true));
    const auto loaded = trace::History::load(directory / "history");
    BOOST_TEST(text(loaded) == text(history));
    BOOST_TEST(loaded.csv() == history.csv());
    BOOST_TEST(loaded.json() == history.json());
    for (const auto& node : history) {
      BOOST_TEST(text(loaded[node.position()]) == text(node));
      if (node.saved()) BOOST_TEST(loaded[node.label()].tensor().equal(node.tensor()));
    }
    BOOST_CHECK_EXCEPTION(loaded.validate(), c10::ValueError, says({"validate", "loaded"}));
    loaded.save(directory / "again", torchtap::storage::SaveOptions().mkdir(true).overwrite(true));
    BOOST_TEST(text(trace::History::load(directory / "again")) == text(history));
  }
}

BOOST_AUTO_TEST_CASE(it_is_a_recording) {
  torchtap_test::TemporaryDirectory directory;
  const auto history = some();
  history.save(directory / "history", torchtap::storage::SaveOptions().mkdir(true));
  const auto recording = torchtap::storage::load(directory / "history");
  BOOST_TEST(recording.size() == static_cast<std::size_t>(history.size()) + 1);
  BOOST_TEST(recording.at("relu_1_2").tensor().equal(history["relu_1"].tensor()));
  BOOST_TEST(recording.at("3").tensor().equal(history["linear_2"].tensor()));  // the module's path
  BOOST_TEST(recording.at("relu_1_2").type() == "aten::relu_");
  BOOST_TEST(recording.at("relu_1_2").kind() == "Trace");
}

/// A file of the first format, as tests/formats/write/views.cpp made it.
BOOST_AUTO_TEST_CASE(the_first_format_is_read) {
  const auto history = trace::History::load(TORCHTAP_TEST_FORMATS "/1/trace");
  BOOST_TEST(history.size() == 4U);
  const trace::Node relu = history["relu"];
  BOOST_TEST(relu.function() == "aten::relu");
  BOOST_TEST((relu.parents() == std::vector{history["linear"]}));
  BOOST_TEST(relu.tensor().equal(torch::tensor({{0.F, 1.F, 6.F}, {7.5F, 5.F, 0.F}})));
  BOOST_TEST(history["linear"].parameters().size() == 2U);
  BOOST_TEST(relu.output_of().at(0).path == "relu");
}

BOOST_AUTO_TEST_CASE(other_recordings_and_damaged_graphs_are_refused) {
  torchtap_test::TemporaryDirectory directory;
  torchtap::storage::Entry entry;
  entry.path = "a";
  entry.kind = "ForwardOutput";
  entry.samples = 1;
  entry.value = torch::ones({2});
  torchtap::storage::save(directory / "other", {entry}, torchtap::storage::SaveOptions().mkdir(true));
  BOOST_CHECK_EXCEPTION(trace::History::load(directory / "other"), c10::ValueError,
                        says({"other", "without the graph"}));
  some().save(directory / "history", torchtap::storage::SaveOptions().mkdir(true));
  const auto recording = torchtap::storage::load(directory / "history");
  const auto last = recording.at(static_cast<std::int64_t>(recording.size()) - 1);
  const auto broken = [&](const std::string& column, const torchtap::core::Value& value,
                          const std::string& message) {
    std::vector<torchtap::storage::Entry> entries;
    for (const auto& one : recording) {
      torchtap::storage::Entry copy;
      static_cast<torchtap::storage::EntryId&>(copy) = one.id();
      copy.samples = one.samples();
      copy.value = one.value();
      entries.push_back(copy);
    }
    torchtap::core::Value::Dict dict = last.value().dict();
    for (auto& [key, old] : dict) {
      if (key == column) old = value;
    }
    entries.back().value = dict;
    torchtap::storage::save(directory / "broken", entries,
                            torchtap::storage::SaveOptions().mkdir(true).overwrite(true));
    BOOST_CHECK_EXCEPTION(trace::History::load(directory / "broken"), c10::ValueError,
                          says({"broken", message}));
  };
  using torchtap::core::Value;
  const auto numbers = [](std::vector<std::int64_t> list) { return torch::tensor(list, at::kLong); };
  broken("format", numbers({99}), "written by a newer torchtap (format 99; this one reads up to 1)");
  broken("totals", numbers({1}), "totals");
  broken("kind", numbers({0}), "different lengths");
  broken("kind", Value(std::string("text")), "cannot be read");
  broken("parents", Value(Value::List{Value(numbers({5})), Value(numbers({0, 1, 1, 1, 1, 1}))}), "not there");
  broken("parents", Value(Value::List{Value(numbers({})), Value(numbers({0, 9, 0, 0, 0, 0}))}), "do not fit");
  broken("layer", numbers({0, 1, 2, 3, 4, 9}), "layers");
  broken("pass", numbers({1, 1, 1, 1, 1, 2}), "passes");
}

BOOST_AUTO_TEST_CASE(tables_have_a_row_for_each_node) {
  const auto history = some();
  const std::string csv = history.csv();
  BOOST_TEST(std::count(csv.begin(), csv.end(), '\n') == history.size() + 1);
  BOOST_TEST(csv.find("position,label,kind") == 0U);
  BOOST_TEST(
      csv.find("1,linear_1_1,operation,linear,aten::linear,1,1,1,3x4,float32,cpu,48,true,input_1_0,relu_1_2,"
               "0.weight 0.bias") != std::string::npos,
      csv);
  torchtap_test::TemporaryDirectory directory;
  std::ofstream(directory / "history.json") << history.json();
  std::ofstream(directory / "history.csv") << csv;
  history.save(directory / "history", torchtap::storage::SaveOptions().mkdir(true));
  // Python reads all three.
  std::ofstream(directory / "check.py") << R"(import csv, json, sys, torch
rows = json.load(open(sys.argv[1] + "/history.json"))
table = list(csv.DictReader(open(sys.argv[1] + "/history.csv", newline="")))
assert [row["label"] for row in rows] == [row["label"] for row in table]
assert rows[2]["in_place"] is True and rows[2]["parents"] == ["linear_1_1"] and rows[2]["shape"] == [3, 4]
manifest = json.load(open(sys.argv[1] + "/history/manifest.json"))
assert [entry["path"] for entry in manifest["entries"][:-1]] == [row["label"] for row in rows]
files = [sys.argv[1] + "/history/" + entry["file"] for entry in manifest["entries"]]
relu = torch.load(files[2])
assert list(relu.shape) == [3, 4] and bool((relu >= 0).all())
graph = torch.load(files[-1])
assert graph["type"] == [row["type"] for row in rows] and graph["layer"].tolist() == list(range(len(rows)))
)";
  const std::string command =
      std::string(TORCHTAP_TEST_PYTHON) + " " + (directory / "check.py") + " " + directory.path();
  BOOST_TEST(std::system(command.c_str()) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
