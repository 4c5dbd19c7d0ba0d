// The table for terminals.
#include <algorithm>
#include <sstream>

#include <torchtap/views/text/characters.hpp>

#include "output_support.hpp"
#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(output_table)

using namespace torchtap_test;
using report::PrintOptions;
using torchtap::views::text::width_of;

namespace {

std::string printed(const Measurements& results, const PrintOptions& options = {}) {
  std::ostringstream out;
  report::print(out, results, options);
  return out.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The first line that has all of `parts`; "" if none has.
std::string line_with(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& line : lines_of(text)) {
    const bool all = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return line.find(part) != std::string::npos;
    });
    if (all) return line;
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The text in one line, as sentences are broken anywhere.
std::string joined(const std::string& text) {
  std::istringstream in(text);
  std::string all;
  for (std::string word; in >> word;) all += word + " ";
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(resnet_in_80_columns) {
  const std::string text = printed(resnet18());
  BOOST_TEST_MESSAGE(text);
  for (const std::string& line : lines_of(text)) BOOST_TEST(width_of(line) <= 80U, line);
  BOOST_TEST(!has(text, "\033"));
  const std::string title = line_with(text, {"ResNet", "8x3x224x224"});
  BOOST_TEST(has(title, "ResNet, input 8x3x224x224 float32 on cpu; 20 repeats"));
  const std::string heads = line_with(text, {"module"});
  for (const char* column : {"output", "params", "MACs", "forward", "backward", "time", "memory"}) {
    BOOST_TEST(has(heads, column), column);
  }
  const std::string conv = line_with(text, {"├─ conv1 Conv2d", "8x64x112x112"});
  BOOST_TEST(has(conv, "9.41 k"));
  BOOST_TEST(has(conv, "944 M"));
  const std::string whole = line_with(text, {"(root)"});
  BOOST_TEST(has(whole, "11.7 M"));
  BOOST_TEST(has(whole, "14.5 G"));
  BOOST_TEST(has(whole, "100%"));
  BOOST_TEST(has(whole, "█ 100%"));
  BOOST_TEST(line_with(text, {"│  │  └─ downsample"}) != "");
  const std::string all = joined(text);
  BOOST_TEST(has(all, "parameters: 11,689,512, all learnable, 46.8 MB; gradients 46.8 MB; buffers 38.6 kB"));
  BOOST_TEST(has(all, "median of 20 repeats"));
  BOOST_TEST(has(all, "14.5 G MACs (29.0 G FLOPs)"));
  BOOST_TEST(has(all, "182.1 MB at the peak, 172.7 MB kept, 122 allocations"));
  BOOST_TEST(has(all, "outside of modules: forward 1 operation, 31.0 µs"));
  BOOST_TEST(has(all, "run: 9.40 s; 12.0 ms were torchtap's own"));
  BOOST_TEST(has(all, "note: oneDNN's scratch memory"));
}

// As in a program into which the model's own forward was compiled.
BOOST_AUTO_TEST_CASE(columns_are_chosen) {
  const std::string text =
      printed(resnet18(), PrintOptions().columns({"learnable", "input", "type"}).width(100));
  const std::string heads = line_with(text, {"module"});
  BOOST_TEST(heads.find("learnable") < heads.find("input"));
  BOOST_TEST(heads.find("input") < heads.find("type"));
  BOOST_TEST(!has(heads, "output"));
  BOOST_TEST(has(line_with(text, {"├─ conv1"}), "Conv2d"));
  BOOST_CHECK_EXCEPTION(printed(resnet18(), PrintOptions().columns({"sizes"})), c10::ValueError,
                        says({"no column \"sizes\"", "\"learnable\""}));
}

BOOST_AUTO_TEST_CASE(nothing_is_said_of_times_that_were_not_measured) {
  Measurements results = resnet18();
  results.seconds = results.own_seconds = 0;
  results.repeats = 1;
  const std::string all = joined(printed(results, PrintOptions().columns({"output", "params"})));
  BOOST_TEST(has(all, "forward: 14.5 G MACs (29.0 G FLOPs)"));
  BOOST_TEST(has(all, "outside of modules: forward 1 operation"));
  for (const char* word : {" s,", " ms", "µs", "median", "run:"}) BOOST_TEST(!has(all, word), word);
}

BOOST_AUTO_TEST_CASE(shares_of_a_model_whose_calls_were_not_seen) {
  Measurements results;
  results.repeats = 1;
  results.root.type = "Net";
  results.root.backward.inclusive.calls = 1;
  results.root.backward.inclusive.median = 1e-4;  // of parameters alone
  for (const char* name : {"a", "b", "c"}) {
    ModuleRow child;
    child.path = child.name = name;
    child.type = "Linear";
    child.reachable = true;
    child.forward.inclusive.calls = 1;
    child.forward.inclusive.median = name[0] == 'c' ? 2e-3 : 1e-3;
    results.root.children.push_back(child);
  }
  const std::string text = printed(results);
  BOOST_TEST(has(line_with(text, {"(root)"}), "100%"));
  BOOST_TEST(has(line_with(text, {"b Linear"}), " 25%"));
  BOOST_TEST(has(line_with(text, {"c Linear"}), " 50%"));
}

BOOST_AUTO_TEST_CASE(sums_say_so) {
  Measurements results = resnet18();
  results.root.summed = true;
  results.root.forward.inclusive.calls = results.root.backward.inclusive.calls = 0;
  results.root.children[4].used_without_call = true;
  const std::string text = printed(results);
  BOOST_TEST(has(line_with(text, {"(root)"}), "100%"));
  BOOST_TEST(has(line_with(text, {"(root)"}), "186 ms"));
  const std::string all = joined(text);
  BOOST_TEST(has(all, "forward: 186 ms, the sum of the modules inside, the median of 20 repeats"));
  BOOST_TEST(has(all, "sums of the modules inside, as no call was seen: the model itself"));
  BOOST_TEST(has(all, "used without a call (an operation read their parameters): layer1"));
}

BOOST_AUTO_TEST_CASE(masks_do_not_drown_a_nan) {
  Measurements results = resnet18();
  results.findings.push_back(
      {report::Role::producer, "aten::log", "fc", 0, false, {8, 0, 0}, {"self: minimum -1002"}, 2});
  for (int i = 0; i < 12; ++i) {
    const std::string block = "h." + std::to_string(i);
    results.findings.push_back({report::Role::origin, "aten::masked_fill", block, 0, false, {0, 0, 56}, {}});
    results.findings.push_back({report::Role::absorber, "aten::softmax", block, 0, false, {0, 0, 56}, {}});
  }
  const std::string all = joined(printed(results));
  const std::size_t first = all.find(
      "the first NaN: aten::log in fc, forward of call 1 in repeat 3, makes 8 NaN of finite values; self: "
      "minimum -1002.");
  BOOST_TEST(first < all.find("(root)"));
  BOOST_TEST(has(all, "not finite 1: producer aten::log"));
  BOOST_TEST(!has(all, "not finite 2"));
  BOOST_TEST(!has(all, "more; the files have all"));
  BOOST_TEST(has(all,
                 "infinities on purpose: from aten::masked_fill in h.0 and 11 more modules; absorbed by "
                 "aten::softmax in h.0 and 11 more modules"));
  results.findings.erase(results.findings.begin());
  BOOST_TEST(!has(joined(printed(results)), "the first NaN"));
  BOOST_TEST(!has(joined(printed(results)), "the first Inf"));
}

BOOST_AUTO_TEST_CASE(more_room_shows_more) {
  const std::string text = printed(resnet18(), PrintOptions().width(200));
  BOOST_TEST(has(text, "11,689,512"));
  BOOST_TEST(has(line_with(text, {"module"}), "own forward"));
  BOOST_TEST(!has(text, "no room for"));
  BOOST_TEST(has(line_with(text, {"avgpool"}), "AdaptiveAvgPool2d"));
  BOOST_TEST(has(printed(resnet18(), PrintOptions().width(50)), "no room for"));
}

BOOST_AUTO_TEST_CASE(everything_fits_every_width) {
  std::vector<Measurements> all{resnet18(), troubled(), nasty(), Measurements()};
  for (const Measurements& results : all) {
    for (const std::size_t width : {40U, 60U, 80U, 100U, 132U}) {
      for (const bool ascii : {false, true}) {
        const std::string text = printed(results, PrintOptions().width(width).ascii(ascii));
        for (const std::string& line : lines_of(text)) {
          BOOST_TEST(width_of(line) <= width, width << ": " << width_of(line) << ": " << line);
        }
        for (const char letter : text) {
          const bool control = static_cast<unsigned char>(letter) < 0x20 && letter != '\n';
          BOOST_TEST(!control);
        }
      }
    }
  }
  const std::string plain = printed(resnet18(), PrintOptions().ascii(true));
  BOOST_TEST(std::all_of(plain.begin(), plain.end(),
                         [](char letter) { return static_cast<unsigned char>(letter) < 0x80; }));
  BOOST_TEST(has(plain, "|- conv1"));
  BOOST_TEST(has(plain, "# 100%"));
}

BOOST_AUTO_TEST_CASE(troubles_are_said) {
  const std::string text = printed(troubled());
  BOOST_TEST_MESSAGE(text);
  BOOST_TEST(has(line_with(text, {"! │     ├─ bn1"}), "8x512x7x7"));
  BOOST_TEST(has(line_with(text, {"aux"}), "! └─ aux"));
  const std::string all = joined(text);
  BOOST_TEST(has(
      all,
      "not finite 1: source weight in layer4.1.bn1, forward of call 1 in repeat 1: 1 NaN; weight: 1 of 512"));
  BOOST_TEST(has(all,
                 "not finite 2: producer aten::batch_norm in layer4.1.bn1, forward of call 1 in repeat 1: 3 "
                 "NaN and 1 Inf"));
  BOOST_TEST(has(
      all, "not finite 4: absorber aten::max_pool2d in the model itself, backward of call 3 in repeat 1"));
  // In a sentence above the table.
  const std::size_t first = all.find("the first NaN: weight, which layer4.1.bn1 reads");
  BOOST_TEST(first < all.find("(root)"));
  BOOST_TEST(has(all, "nonfinite: layer4.1, layer4.1.bn1"));
  BOOST_TEST(has(all, "dead_relu: layer4.0.relu (output: 100 % of 25,088 values are zero)"));
  BOOST_TEST(has(all, "never_ran: aux"));
  BOOST_TEST(has(all, "the same module: bn1 = norm, layer9.norm"));
  BOOST_TEST(has(all, "calls cannot be seen, so that what they do is said of the module around: aux"));
  BOOST_TEST(has(all, "not counted: my::attention in layer3.1 (4 calls)"));
}

BOOST_AUTO_TEST_CASE(depth_and_long_trees) {
  const std::string text = printed(troubled(), PrintOptions().depth(1));
  BOOST_TEST(has(text, "layer4 +15"));
  BOOST_TEST(!has(text, "conv2"));
  const std::string wide = printed(troubled(), PrintOptions().depth(1).width(140));
  BOOST_TEST_MESSAGE(wide);
  BOOST_TEST(has(line_with(wide, {"layer4 +15"}), "3 inside"));
  BOOST_TEST(has(line_with(wide, {"aux"}), "never_ran"));
  BOOST_TEST(has(printed(resnet18(), PrintOptions().depth(0)), "(root) +67"));
  // All 68 modules are shown by default, and not if only 30 may be.
  BOOST_TEST(!has(printed(resnet18()), "left out"));
  const std::string few = printed(resnet18(), PrintOptions().max_rows(30));
  BOOST_TEST(has(few, "modules below depth 2 are left out"));
  BOOST_TEST(has(few, "1 +5"));
  BOOST_TEST(has(few, "0 +8"));
}

BOOST_AUTO_TEST_CASE(colours_are_only_there_if_asked_for) {
  const std::string text = printed(troubled(), PrintOptions().colour(true));
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = text.find('m', i);
    } else {
      plain += text[i];
    }
  }
  BOOST_TEST(plain.size() < text.size());
  BOOST_TEST(plain == printed(troubled()));
}

BOOST_AUTO_TEST_CASE(what_was_not_measured_has_no_column) {
  Measurements results;
  results.root.type = "Net";
  results.root.children.push_back(Builder::leaf("fc", "Linear", 10, {1, 4}, {1, 2}, 8));
  ModuleRow& fc = results.root.children[0];
  fc.path = "fc";
  fc.backward = {};
  fc.forward.memory = {};
  const std::string heads = line_with(printed(results), {"module"});
  BOOST_TEST(has(heads, "forward"));
  BOOST_TEST(!has(heads, "backward"));
  BOOST_TEST(!has(heads, "memory"));
  BOOST_TEST(!has(heads, "mark"));
  // The model itself has no time; its children's are the whole.
  BOOST_TEST(has(line_with(printed(results), {"fc"}), "100%"));
}

BOOST_AUTO_TEST_CASE(wrong_options) {
  std::ostringstream out;
  BOOST_CHECK_EXCEPTION(report::print(out, resnet18(), PrintOptions().width(39)), c10::ValueError,
                        says({"report::print", "width is 39", "at least 40"}));
  BOOST_CHECK_EXCEPTION(report::print(out, resnet18(), PrintOptions().depth(-1)), c10::ValueError,
                        says({"report::print", "depth is -1"}));
}

BOOST_AUTO_TEST_SUITE_END()
