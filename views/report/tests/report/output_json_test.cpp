// JSON and CSV: round trips, Python as the reader, and documents that are no reports.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <regex>
#include <sstream>

#include "output_support.hpp"
#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(output_json)

using namespace torchtap_test;

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// What Python prints; the test fails if it fails.
std::string python(const TemporaryDirectory& place, const std::string& program) {
  write(place / "program.py", program);
  const std::string command = std::string(TORCHTAP_TEST_PYTHON) + " " + (place / "program.py") + " > " +
                              (place / "out") + " 2> " + (place / "errors");
  const int status = std::system(command.c_str());
  BOOST_REQUIRE_MESSAGE(status == 0, content(place / "errors"));
  return content(place / "out");
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  BOOST_REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_read_is_what_was_written) {
  for (const Measurements& results : {resnet18(), troubled(), nasty(), Measurements()}) {
    const std::string text = report::json(results);
    const Measurements read = report::from_json(text);
    BOOST_TEST(report::json(read) == text);
    BOOST_TEST(report::csv(read) == report::csv(results));
    BOOST_TEST(report::html(read) == report::html(results));
    std::ostringstream before, after;
    before << results;
    after << read;
    BOOST_TEST(after.str() == before.str());
  }
  const Measurements read = report::from_json(report::json(troubled()));
  const ModuleRow& conv = read.root.children[5].children[0].children[0];
  BOOST_TEST(conv.path == "layer2.0.conv1");
  BOOST_TEST(conv.name == "conv1");
  BOOST_TEST(conv.parameters == 64 * 128 * 9);
  BOOST_TEST(conv.outputs.at(0).shape == (std::vector<std::int64_t>{8, 128, 28, 28}),
             boost::test_tools::per_element());
  BOOST_TEST((conv.outputs.at(0).dtype == at::kFloat));
  BOOST_TEST(std::isinf(*conv.gradient_norm));
  BOOST_TEST((conv.marks == std::vector<std::string>{"exploding_gradient"}));
  BOOST_TEST(conv.forward.self.p90 == troubled().root.children[5].children[0].children[0].forward.self.p90);
  BOOST_TEST(!read.root.children.back().zero_fraction);
  BOOST_TEST(read.findings.size() == 4U);
  BOOST_TEST((read.findings[3].role == report::Role::absorber));
  BOOST_TEST(read.findings[3].backward);
  BOOST_TEST(read.not_counted[0].calls == 4);
}

BOOST_AUTO_TEST_CASE(sums_masks_and_repeats_come_back) {
  Measurements results = troubled();
  results.root.summed = true;
  results.root.children[0].used_without_call = true;
  results.root.forward.out.intended_inf = 15;
  results.findings[1].repeat = 4;
  results.findings.push_back(
      {report::Role::origin, "aten::masked_fill", "layer1", 0, false, {0, 0, 15}, {}, 1});
  const Measurements read = report::from_json(report::json(results));
  BOOST_TEST(read.root.summed);
  BOOST_TEST(!read.root.children[0].summed);
  BOOST_TEST(read.root.children[0].used_without_call);
  BOOST_TEST(read.root.forward.out.intended_inf == 15);
  BOOST_TEST(read.findings[1].repeat == 4);
  BOOST_TEST((read.findings.back().role == report::Role::origin));
  BOOST_TEST(read.findings.back().values.intended_inf == 15);
  // A document of the first format has none of these.
  const std::regex added(R"re(,\s*"(summed|used_without_call|intended_inf|repeat)": [a-z0-9]+)re");
  const std::string old =
      with(std::regex_replace(report::json(troubled()), added, ""), "\"format\": 3", "\"format\": 1");
  BOOST_TEST(old.find("intended_inf\":") == std::string::npos);
  BOOST_TEST(report::json(report::from_json(old)) == report::json(troubled()));
}

BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite_and_rare_dtypes) {
  Measurements results = resnet18();
  results.seconds = std::numeric_limits<double>::denorm_min();
  results.own_seconds = -std::numeric_limits<double>::infinity();
  results.root.gradient_norm = std::nan("");
  results.root.forward.memory.kept = std::numeric_limits<std::int64_t>::min();
  results.root.inputs = {tensor("0.key", {}), tensor("1", {0, 3})};
  results.root.inputs[0].dtype = at::kQInt8;
  results.root.inputs[1].dtype = at::kComplexDouble;
  results.root.inputs[1].device = at::Device(at::kCUDA, 1);
  const std::string text = report::json(results);
  const Measurements read = report::from_json(text);
  BOOST_TEST(read.seconds == results.seconds);
  BOOST_TEST(read.own_seconds == results.own_seconds);
  BOOST_TEST(std::isnan(*read.root.gradient_norm));
  BOOST_TEST(read.root.forward.memory.kept == results.root.forward.memory.kept);
  BOOST_TEST((read.root.inputs[0].dtype == at::kQInt8));
  BOOST_TEST((read.root.inputs[1].dtype == at::kComplexDouble));
  BOOST_TEST((read.root.inputs[1].device == at::Device(at::kCUDA, 1)));
  BOOST_TEST(read.root.inputs[0].name == "0.key");
}

BOOST_AUTO_TEST_CASE(python_reads_json) {
  const TemporaryDirectory place;
  report::save(troubled(), place / "insight.json");
  report::save(nasty(), place / "nasty.json");
  const std::string out = python(place, R"(
import json, math, sys
def never(text): raise ValueError(text)
strict = dict(parse_constant=never)
folder = ")" + place.path() + R"("
document = json.load(open(folder + "/insight.json"), **strict)
(name, model), = document.items()
assert name == "ResNet", name
assert model["report"]["format"] == 3 and model["report"]["repeats"] == 20
info = model["info"]
assert info["num_parameters"] == 11689512, info["num_parameters"]
assert info["forward"]["work"]["macs"] == 8 * 1814073344, info["forward"]["work"]["macs"]
assert info["input_shapes"] == [[8, 3, 224, 224]] and info["input_dtypes"] == ["float32"]
def leaves(name, module, path=()):
    assert set(module) - {"report"} == {"info", "children"}, set(module)
    assert module["info"]["path"] == ".".join(path), path
    if not module["children"]: yield path
    for child, inner in module["children"].items(): yield from leaves(child, inner, (*path, child))
paths = list(leaves(name, model))
assert len(paths) == 1 + 3 + 4 * 10 + 3 * 2 + 2 + 1, len(paths)
conv = model["children"]["layer2"]["children"]["0"]["children"]["conv1"]["info"]
assert conv["type"] == "Conv2d" and math.isinf(float(conv["gradient_norm"]))
assert conv["forward_latency_seconds"] == conv["forward"]["inclusive"]["median_seconds"] > 0
bn = model["children"]["layer4"]["children"]["1"]["children"]["bn1"]["info"]
assert bn["forward_nan"] is True and conv["forward_nan"] is False and bn["marks"] == ["nonfinite"]
assert bn["forward_inf"] is True and conv["forward_inf"] is False and bn["forward"]["non_finite_out"] == {"nan": 3, "inf": 1, "intended_inf": 0}
first = model["report"]["first_non_finite"]
assert first.startswith("the first NaN: weight, which layer4.1.bn1 reads, forward of call 1 in repeat 1, has 1 NaN itself"), first
assert model["report"]["intended_infinities"] == ""
assert model["children"]["aux"]["info"]["zero_fraction"] is None
nasty = json.load(open(folder + "/nasty.json", newline=""), **strict)
(_, model), = nasty.items()
sys.stdout.buffer.write("\n".join(repr(name) for name in model["children"]).encode("unicode_escape"))
print(len(model["children"]), model["report"]["notes"] == list(model["children"]))
)");
  BOOST_TEST(out.find(std::to_string(nasty_names().size()) + " True") != std::string::npos);
  BOOST_TEST(out.find("<script>alert(1)</script>") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(python_reads_csv) {
  const TemporaryDirectory place;
  report::save(troubled(), place / "insight.csv");
  report::save(nasty(), place / "nasty.csv");
  python(place, R"(
import csv
folder = ")" + place.path() +
                    R"("
rows = list(csv.DictReader(open(folder + "/insight.csv", newline="")))
assert len(rows) == 69, len(rows)
assert rows[0]["path"] == '(root)' and rows[0]["type"] == "ResNet" and rows[0]["num_parameters"] == "11689512"
conv = next(row for row in rows if row["path"] == "layer2.0.conv1")
assert conv["output_shapes"] == "8x128x28x28" and conv["gradient_norm"] == "Infinity" and conv["marks"] == "exploding_gradient"
assert float(conv["forward.inclusive.median_seconds"]) == float(conv["forward_latency_seconds"]) > 0
assert int(conv["forward.work.flops"]) == 2 * int(conv["forward.work.macs"]) == 2 * 8 * 64 * 128 * 9 * 28 * 28
assert all(None not in row and None not in row.values() for row in rows)
nasty = list(csv.DictReader(open(folder + "/nasty.csv", newline="")))
paths = [row["path"] for row in nasty]
assert len(nasty) == 1 + 2 * )" +
                    std::to_string(nasty_names().size()) +
                    R"(
assert "<script>alert(1)</script>" in paths and "line\nbreak\r\ttab" in paths and 'a"quoted" \'name\', with; commas' in paths
)");
}

BOOST_AUTO_TEST_CASE(bytes_that_are_no_utf8_are_escaped) {
  Measurements results;
  results.root.type = "Model";
  results.root.children.push_back(Builder::leaf("bad\xff\xc3name", "T", 0, {1}, {1}, 0));
  Builder::name_paths(results.root);
  const Measurements read = report::from_json(report::json(results));
  BOOST_TEST(read.root.children[0].name == "bad\\377\\303name");
}

/// A file that was written before, by tests/formats/write/views.cpp.
BOOST_AUTO_TEST_CASE(a_file_of_before_is_read) {
  const report::Measurements results = report::load(TORCHTAP_TEST_FORMATS "/1/report.json");
  BOOST_TEST(results.root.type == "Sequential");
  BOOST_REQUIRE(results.root.children.size() == 2U);
  const report::ModuleRow& linear = results.root.children[0];
  BOOST_TEST(linear.path == "fc");
  BOOST_TEST(linear.parameters == 9);
  BOOST_TEST(linear.forward.work.macs == 12);
  BOOST_TEST(linear.forward.inclusive.calls == 2);
  BOOST_TEST((results.root.marks == std::vector<std::string>{"nonfinite"}));
  BOOST_TEST((results.findings.at(0).role == report::Role::producer));
  BOOST_TEST(results.findings.at(0).function == "aten::div");
  // All of it was read: written again, it is the same text.
  const std::string text = content(TORCHTAP_TEST_FORMATS "/1/report.json");
  BOOST_TEST(report::json(results) == text);
  // As format 2 called them.
  std::string before = with(text, "\"format\": 3", "\"format\": 2");
  before = with(std::move(before), "\"marks\": [\"nonfinite\"]",
                "\"marks\": [\"non-finite\", \"never ran\", \"dead\"]");
  BOOST_TEST((report::from_json(before).root.marks ==
              std::vector<std::string>{"nonfinite", "never_ran", "dead_relu"}));
}

BOOST_AUTO_TEST_CASE(documents_that_are_no_reports) {
  const auto fails = [](const std::string& text, std::vector<std::string> parts) {
    BOOST_CHECK_EXCEPTION(report::from_json(text), c10::ValueError, says(std::move(parts)));
  };
  const std::string good = report::json(troubled());
  fails("", {"report::from_json", "not JSON"});
  fails("{", {"not JSON"});
  fails("[]", {"not a report"});
  fails("{}", {"not a report"});
  fails(R"({"schema": 1, "entries": []})", {"not a report"});
  fails(R"({"ResNet": {"info": {}, "children": {}}})", {"not a report"});
  fails(R"({"ResNet": 3})", {"not a report"});
  fails(R"({"ResNet": {"report": {}}})", {"ResNet.report has no \"format\""});
  fails(with(good, "\"format\": 3", "\"format\": 4"),
        {"written by a newer torchtap (format 4; this one reads up to 3)"});
  fails(with(good, "\"format\": 3", "\"format\": 0"), {"it has format 0"});
  fails(with(good, "\"format\": 3", "\"format\": \"1\""),
        {"ResNet.report.format should be a whole number and is the text \"1\""});
  fails(with(good, "\"num_parameters\": 11689512", "\"num_parameters\": 1.5"),
        {"ResNet.info.num_parameters should be a whole number and is 1.5"});
  fails(with(good, "\"gradient_norm\": \"Infinity\"", "\"gradient_norm\": \"large\""),
        {"ResNet.children.layer2.children.0.children.conv1.info.gradient_norm", "\"large\""});
  fails(with(good, "\"exploding_gradient\"", "3"), {"marks[0]", "should be a text and is 3"});
  fails(with(good, "\"producer\"", "\"odd\""), {"findings[1].role should be a role and is the text \"odd\""});
  fails(with(good, "\"input_bytes\": [", "\"input_bytes\": [1, "), {"should be as many"});
  fails(with(good, "\"cpu\"", "\"desk\""), {"input_devices", "\"desk\""});
  std::string deep = R"({"M": {"report": )";
  const Measurements empty;
  const std::string document = report::json(empty);
  const std::size_t info = document.find("\"info\"");
  std::string module = document.substr(info, document.rfind("\"children\"") - info) + "\"children\": {";
  deep = document.substr(0, info);
  for (int i = 0; i < 2000; ++i) deep += module + "\"m\": {";
  deep += module + "}";
  for (int i = 0; i < 2000; ++i) deep += "}}";
  deep += "}}";
  fails(deep, {"nested deeper than"});
}

BOOST_AUTO_TEST_CASE(damaged_documents_are_errors_and_never_crashes) {
  const std::string good = report::json(nasty());
  std::mt19937 random(7);
  int read = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    const std::size_t at = random() % text.size();
    switch (random() % 3) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text[at] = static_cast<char>(random());
        break;
      default:
        text.erase(at, random() % 40);
    }
    try {
      report::from_json(text);
      ++read;
    } catch (const c10::ValueError&) {
    }
  }
  BOOST_TEST(read < 2000);
}

BOOST_AUTO_TEST_CASE(files) {
  const TemporaryDirectory place;
  const std::string file = place / "insight.json";
  report::save(resnet18(), file);
  BOOST_TEST(content(file) == report::json(resnet18()));
  BOOST_TEST(report::json(report::load(file)) == content(file));
  report::save(troubled(), file);  // replaces
  BOOST_TEST(content(file) == report::json(troubled()));
  report::save(troubled(), place / "UPPER.HTML");
  BOOST_TEST(content(place / "UPPER.HTML") == report::html(troubled()));
  for (const char* name : {"insight", "insight.txt", "insight.json.gz", ".json/insight", "insight.xlsx"}) {
    BOOST_CHECK_EXCEPTION(report::save(resnet18(), place / name), c10::ValueError,
                          says({"report::save", name, ".json, .csv or .html"}));
    BOOST_CHECK_EXCEPTION(report::check_path(place / name), c10::ValueError,
                          says({"report::check_path", name, ".json, .csv or .html"}));
  }
  BOOST_CHECK_EXCEPTION(report::save(resnet18(), place / "none/insight.json"), c10::ValueError,
                        says({"report::save", "none", "does not exist"}));
  fs::create_directory(place / "folder.json");
  BOOST_CHECK_THROW(report::save(resnet18(), place / "folder.json"), c10::Error);
  BOOST_CHECK_EXCEPTION(report::check_path(place / "folder.json"), c10::ValueError, says({"is a directory"}));
  BOOST_CHECK_EXCEPTION(report::check_path(place / "none/insight.json"), c10::ValueError,
                        says({"does not exist"}));
  report::check_path(file);
  BOOST_CHECK_EXCEPTION(report::load(place / "absent.json"), c10::ValueError,
                        says({"report::load", "absent.json"}));
  write(place / "broken.json", content(file).substr(0, 1000));
  BOOST_CHECK_EXCEPTION(report::load(place / "broken.json"), c10::ValueError,
                        says({"report::load: cannot read", "broken.json", "not JSON"}));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(place.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  BOOST_TEST(names == (std::vector<std::string>{"UPPER.HTML", "broken.json", "folder.json", "insight.json"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
