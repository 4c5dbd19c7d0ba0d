// Pictures: what is drawn is compared with the history, as Graphviz itself reads it.
#include <boost/test/unit_test.hpp>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "drawn.hpp"
#include "support.hpp"
#include "tests/emulated.hpp"
#include "tests/only_where.hpp"

BOOST_AUTO_TEST_SUITE(drawing)

namespace {

using namespace support;
using torchtap_test::says;
using torchtap_test::TemporaryDirectory;
using trace::DrawOptions;
namespace fs = std::filesystem;
namespace utf = boost::unit_test;

trace::History history_of_resnet() {
  torch::manual_seed(0);
  ResNet model;
  model->eval();
  const torch::NoGradGuard no_grad;
  return trace::log_forward_pass(*model, {torch::rand({1, 3, 32, 32})});
}

/// An Elman network, whose modules run once a step.
struct ElmanImpl : nn::Module {
  nn::Linear into{4, 6}, over{6, 6}, out{6, 3};
  ElmanImpl() {
    register_module("into", into);
    register_module("over", over);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = torch::zeros({x.size(1), 6});
    for (const at::Tensor& step : x.unbind(0)) {
      const at::Tensor from_input = into(step);
      h = torch::tanh(from_input + over(h));
    }
    return out(h);
  }
};
TORCH_MODULE(Elman);

trace::History history_of_elman(std::int64_t steps) {
  Elman model;
  return trace::log_forward_pass(*model, {torch::rand({steps, 2, 4})});
}

/// Sets PATH for a while.
class Path {
 public:
  explicit Path(const std::string& path) : former_(::getenv("PATH")) { ::setenv("PATH", path.c_str(), 1); }
  ~Path() { ::setenv("PATH", former_.c_str(), 1); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

 private:
  std::string former_;
};

/// Makes a program called `dot` of a shell script.
void write_program(const TemporaryDirectory& folder, const std::string& script) {
  const std::string file = folder / "dot";
  std::ofstream(file) << "#!/bin/sh\n" << script << '\n';
  fs::permissions(file, fs::perms::owner_all);
}

std::string contents(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::size_t files_in(const TemporaryDirectory& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()));
}

/// Where Graphviz is not installed, tests of it are skipped and shown as such.
struct HasGraphviz {
  boost::test_tools::assertion_result operator()(utf::test_unit_id) const {
    if (std::system("dot -V 2>/dev/null") == 0) return true;
    boost::test_tools::assertion_result no(false);
    no.message() << "Graphviz is not installed";
    return no;
  }
};

BOOST_AUTO_TEST_CASE(draws_every_node_and_every_edge) {
  const trace::History history = history_of_resnet();
  const Drawn picture = drawn(history);
  BOOST_TEST(picture.boxes.size() == static_cast<std::size_t>(history.size()));
  for (const std::string& label : history.labels()) BOOST_TEST(picture.boxes.count(label) == 1U, label);
  BOOST_TEST((ends_of(picture) == edges_of(history)));
  BOOST_TEST(picture.arrows.size() == edges_of(history).size());
}

BOOST_AUTO_TEST_CASE(writes_shapes_parameters_and_modules_on_nodes) {
  nn::Sequential model({{"conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 7).stride(2).padding(3).bias(false))},
                        {"flatten", nn::Flatten()},
                        {"head", nn::Linear(8 * 16 * 16, 10)}});
  const trace::History history = trace::log_forward_pass(*model, {torch::rand({1, 3, 32, 32})});
  const Drawn picture = drawn(history);
  BOOST_TEST(picture.boxes.at("conv2d_1_1").at("label") ==
             "conv2d_1_1\n1x8x16x16 (8.2 kB)\nweight 8x3x7x7\n@conv");
  BOOST_TEST(picture.boxes.at("linear_1_3").at("label") ==
             "linear_1_3\n1x10 (40 B)\nweight 10x2048, bias 10\n@head");
  BOOST_TEST(picture.boxes.at("input_1_0").at("fillcolor") == "#98FB98");
  BOOST_TEST(picture.boxes.at("output_1_4").at("fillcolor") == "#FF9999");
  BOOST_TEST(picture.boxes.at("conv2d_1_1").at("fillcolor") == "#E6E6E6");
  BOOST_TEST(picture.boxes.at("flatten_1_2").at("fillcolor") == "white");
  BOOST_TEST(picture.boxes.at("conv2d_1_1").at("shape") == "box");  // what a module returned
  BOOST_TEST(picture.frames.empty());
  BOOST_TEST(picture.graph.at("rankdir") == "BT");
  BOOST_TEST(picture.graph.at("label") ==
             "Sequential: 3 operations, 5 tensors (28.8 kB), 21,666 parameters in 3 tensors (86.7 kB)");
}

BOOST_AUTO_TEST_CASE(frames_modules_with_several_nodes) {
  const trace::History history = history_of_resnet();
  const Drawn picture = drawn(history);
  std::vector<std::string> expected{"blocks"};
  for (int i = 0; i < 6; ++i) expected.push_back("blocks." + std::to_string(i));
  std::vector<std::string> paths;
  for (const std::string& frame : picture.frames) paths.push_back(first_line(frame));
  BOOST_TEST(paths == expected, boost::test_tools::per_element());
  for (const trace::Node& node : history) {
    const std::string& frame = picture.frame.at(node.label());
    const std::string innermost = node.modules().empty() ? "" : node.modules().back().path;
    BOOST_TEST(first_line(frame) == innermost, node.label());
  }
  // The last operation of a block is in its frame, and no line says so again.
  const auto& last = picture.boxes.at(history["blocks.3"].label());
  BOOST_TEST(last.at("label").find('@') == std::string::npos);
  BOOST_TEST(last.at("shape") == "box");
  BOOST_TEST(picture.boxes.at(history["flatten"].label()).at("shape") == "ellipse");  // no module returned it
}

BOOST_AUTO_TEST_CASE(depth_draws_modules_as_boxes) {
  const trace::History history = history_of_resnet();
  const Drawn flat = drawn(history, DrawOptions().depth(1));
  const auto is_module = [](const auto& box) { return box.second.at("shape") == "box3d"; };
  BOOST_TEST(std::count_if(flat.boxes.begin(), flat.boxes.end(), is_module) == 1);
  BOOST_TEST(flat.frames.empty());
  const auto blocks = std::find_if(flat.boxes.begin(), flat.boxes.end(), is_module);
  BOOST_REQUIRE((blocks != flat.boxes.end()));
  std::int64_t inside = 0, parameters = 0;
  for (const trace::Node& node : history) inside += node.modules().empty() ? 0 : 1;
  for (const at::Tensor& parameter : ResNet()->blocks->parameters()) parameters += parameter.numel();
  BOOST_TEST(parameters == 43808);
  BOOST_TEST(blocks->second.at("label") == "blocks (Sequential)\n1x32x2x2 (512 B)\n" +
                                               std::to_string(inside) + " operations\n43,808 parameters");
  BOOST_TEST(static_cast<std::int64_t>(flat.boxes.size()) == history.size() - inside + 1);

  BOOST_TEST(drawn(history, DrawOptions().depth(2)).frames.size() == 1U);  // blocks, with a box for each
  BOOST_TEST(drawn(history, DrawOptions().depth(9)).boxes.size() == static_cast<std::size_t>(history.size()));
  const Drawn whole = drawn(history, DrawOptions().depth(0));
  BOOST_TEST(whole.boxes.size() == 3U);
  BOOST_TEST(
      (ends_of(whole) == Ends{{"input_1_0", history.model()}, {history.model(), history[-1].label()}}));
}

BOOST_AUTO_TEST_CASE(rolled_draws_passes_as_one) {
  const trace::History history = history_of_elman(20);
  BOOST_TEST(history["tanh_1:20"].passes() == 20);
  const Drawn unrolled = drawn(history);
  BOOST_TEST(unrolled.boxes.size() == static_cast<std::size_t>(history.size()));
  const Drawn rolled = drawn(history, DrawOptions().rolled(true));
  BOOST_TEST(rolled.boxes.size() == static_cast<std::size_t>(history.layers()));
  const auto named = [&](const std::string& type) {
    for (const auto& [name, attributes] : rolled.boxes) {
      if (name.find(type) == 0) return name;
    }
    return std::string("none");
  };
  const std::string tanh = named("tanh"), zeros = named("zeros");
  BOOST_TEST(tanh.find(" \u00d720") != std::string::npos);
  // The second linear layer reads zeros first, then what the step before computed.
  std::map<std::string, std::string> into_over;
  for (const auto& arrow : rolled.arrows) {
    if (arrow.from == zeros || (arrow.from == tanh && arrow.to.find("linear_2") == 0))
      into_over[arrow.from] = arrow.label;
  }
  BOOST_TEST(into_over[zeros] == "pass 1");
  BOOST_TEST(into_over[tanh] == "passes 2\u201320");
  // Its first pass depends on no input, others do.
  BOOST_TEST(rolled.boxes.at(named("linear_2")).at("style") == "filled");
}

BOOST_AUTO_TEST_CASE(above_max_nodes_modules_collapse_from_the_deepest) {
  const trace::History history = history_of_resnet();
  const auto count = [&](const DrawOptions& options) { return drawn(history, options).boxes.size(); };
  const std::size_t all = static_cast<std::size_t>(history.size());
  const std::size_t blocks = count(DrawOptions().depth(2)), one = count(DrawOptions().depth(1));
  BOOST_TEST(one < blocks);
  BOOST_TEST(blocks < all);
  const auto limit = [](std::size_t most) {
    return DrawOptions().max_nodes(static_cast<std::int64_t>(most));
  };
  BOOST_TEST(count(limit(all)) == all);
  BOOST_TEST(count(limit(all - 1)) == blocks);
  BOOST_TEST(count(limit(blocks - 1)) == one);
  BOOST_TEST(count(limit(1).depth(2)) == blocks);  // what was asked for
  const auto caption = [&](const DrawOptions& options) { return drawn(history, options).graph.at("label"); };
  BOOST_TEST(caption(limit(all)).find("Reduced") == std::string::npos);
  BOOST_TEST(caption(limit(1).depth(2)).find("Reduced") == std::string::npos);
  const std::string said = caption(limit(blocks));
  BOOST_TEST(said.find("Reduced from " + std::to_string(all) + " nodes") != std::string::npos, said);
  BOOST_TEST(said.find("depth 2") != std::string::npos, said);
}

BOOST_AUTO_TEST_CASE(a_long_loop_without_modules_is_rolled) {
  const trace::History history = logged(
      [] {
        at::Tensor x = torch::ones({2});
        for (int i = 0; i < 100; ++i) x = x.sin().cos().exp();
      },
      trace::TraceOptions());
  BOOST_TEST(history.layers() == 4);
  const Drawn picture = drawn(history, DrawOptions().max_nodes(50));
  BOOST_TEST(picture.boxes.size() == 4U);
  BOOST_TEST(picture.graph.at("label").find("all passes of a layer as one") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(calls_of_a_module_are_told_apart) {
  struct Twice : nn::Module {
    nn::Sequential block{nn::Linear(3, 3), nn::ReLU()};
    Twice() { register_module("block", block); }
    at::Tensor forward(const at::Tensor& x) { return block->forward(block->forward(x)); }
  };
  const auto model = std::make_shared<Twice>();
  const trace::History history = trace::log_forward_pass(*model, {torch::rand({1, 3})});
  const auto begins = [](const std::vector<std::string>& frames) {
    std::vector<std::string> found;
    for (const std::string& frame : frames) found.push_back(first_line(frame));
    return found;
  };
  const std::vector<std::string> both{"block:1", "block:2"}, one{"block \u00d72"};
  BOOST_TEST(begins(drawn(history).frames) == both, boost::test_tools::per_element());
  BOOST_TEST(begins(drawn(history, DrawOptions().rolled(true)).frames) == one,
             boost::test_tools::per_element());
  BOOST_TEST(drawn(history, DrawOptions().depth(1)).boxes.size() == 4U);
  BOOST_TEST(drawn(history, DrawOptions().depth(1).rolled(true)).boxes.size() == 3U);
}

BOOST_AUTO_TEST_CASE(arrows_are_named_where_their_order_matters) {
  const trace::History history = logged(
      [] {
        const at::Tensor a = torch::ones({2, 2}), b = torch::zeros({2, 2});
        torch::cat({a.sub(b), a.add(b), a}).sum();
      },
      trace::TraceOptions());
  std::map<std::pair<std::string, std::string>, std::string> labels;
  for (const auto& arrow : drawn(history).arrows) labels[{arrow.from, arrow.to}] = arrow.label;
  const auto label = [&](const std::string& from, const std::string& to) {
    return labels.at({history[from].label(), history[to].label()});
  };
  BOOST_TEST(label("ones", "sub") == "self");
  BOOST_TEST(label("zeros", "sub") == "other");
  BOOST_TEST(label("ones", "add") == "");
  BOOST_TEST(label("add", "cat") == "tensors[1]");
  BOOST_TEST(label("ones", "cat") == "tensors[2]");
  BOOST_TEST(label("cat", "sum") == "");
}

BOOST_AUTO_TEST_CASE(what_depends_on_no_input_is_dashed) {
  const trace::History history = history_of_elman(3);
  const Drawn picture = drawn(history);
  BOOST_TEST(picture.boxes.at(history["zeros"].label()).at("style") == "filled,dashed");
  BOOST_TEST(picture.boxes.at(history[-1].label()).at("style") == "filled");
}

BOOST_AUTO_TEST_CASE(parameters_and_buffers_can_be_boxes) {
  nn::Sequential model({{"linear", nn::Linear(3, 4)}, {"norm", nn::BatchNorm1d(4)}});
  model->eval();
  model->named_parameters()["linear.bias"].set_requires_grad(false);
  const trace::History history = trace::log_forward_pass(*model, {torch::rand({2, 3})});
  const Drawn picture = drawn(history, DrawOptions().parameters(true));
  BOOST_TEST(picture.boxes.size() == static_cast<std::size_t>(history.size()) + 6);
  BOOST_TEST(picture.boxes.at("linear.weight").at("label") == "linear.weight\n4x3 (48 B)");
  BOOST_TEST(picture.boxes.at("linear.bias").at("label") == "linear.bias\n4 (16 B), frozen");
  BOOST_TEST(picture.boxes.at("norm.running_var").at("fillcolor") == "#888888");
  BOOST_TEST(ends_of(picture).count({"linear.weight", history["linear"].label()}) == 1U);
  BOOST_TEST(picture.boxes.at(history["linear"].label()).at("label").find("weight") == std::string::npos);
  BOOST_TEST(drawn(history, DrawOptions().parameters(true).depth(1)).boxes.size() == 4U);
}

BOOST_AUTO_TEST_CASE(gradients_run_back) {
  nn::Sequential model(nn::Linear(3, 4), nn::ReLU());
  trace::Tracer tracer(*model, trace::TraceOptions().save(trace::Save::all).gradients(true));
  const at::Tensor x = torch::rand({2, 3});
  tracer.input(x);
  at::Tensor y;
  tracer.run([&] { y = model->forward(x); });
  y.sum().backward();
  const trace::History history = tracer.finish();
  const auto gradients = [&](const DrawOptions& options) {
    Ends ends;
    for (const auto& arrow : drawn(history, options).arrows) {
      if (!arrow.color.empty()) ends.insert({arrow.from, arrow.to});
    }
    return ends;
  };
  BOOST_TEST((gradients({}) == Ends{{history["relu"].label(), history["linear"].label()}}));
  BOOST_TEST(gradients(DrawOptions().gradients(false)).empty());
}

BOOST_AUTO_TEST_CASE(styles_and_attributes_replace_the_defaults) {
  const trace::History history = history_of_elman(2);
  std::set<std::string> asked;
  const std::string strange = "\"quoted\" \\N back\\slash\nand a line";
  const auto options = DrawOptions()
                           .style([&](const trace::Node& node, Attributes& attributes) {
                             BOOST_TEST(attributes.count("fillcolor") == 1U);
                             asked.insert(node.label());
                             if (node.type() == "tanh") attributes["fillcolor"] = "#ABCDEF";
                             if (node.type() == "zeros") attributes["label"] = strange;
                           })
                           .graph({{"rankdir", "RL"}, {"bgcolor", "#101010"}});
  const Drawn picture = drawn(history, options);
  const auto labels = history.labels();
  BOOST_TEST((asked == std::set<std::string>(labels.begin(), labels.end())));
  BOOST_TEST(picture.boxes.at(history["tanh_1:1"].label()).at("fillcolor") == "#ABCDEF");
  BOOST_TEST(picture.graph.at("rankdir") == "RL");
  BOOST_TEST(picture.graph.at("bgcolor") == "#101010");
  BOOST_TEST(history.dot(options).find(R"("\"quoted\" \\N back\\slash\nand a line")") != std::string::npos);
  BOOST_TEST(drawn(history, DrawOptions().direction(trace::Direction::left_right)).graph.at("rankdir") ==
             "LR");
  BOOST_TEST(drawn(history, DrawOptions().direction(trace::Direction::top_down)).graph.at("rankdir") == "TB");
}

BOOST_AUTO_TEST_CASE(wrong_options_are_errors) {
  const trace::History history = history_of_elman(2);
  BOOST_CHECK_EXCEPTION(history.dot(DrawOptions().depth(-1)), c10::ValueError, says({"depth is -1"}));
  BOOST_CHECK_EXCEPTION(history.dot(DrawOptions().max_nodes(0)), c10::ValueError, says({"max_nodes is 0"}));
  const TemporaryDirectory folder;
  BOOST_CHECK_EXCEPTION(history.draw(folder / "a.svg", DrawOptions().time_limit(0)), c10::ValueError,
                        says({"time_limit is 0"}));
  for (const char* file : {"picture.jpg", "picture", "svg", ".d/picture"}) {
    BOOST_CHECK_EXCEPTION(history.draw(folder / file), c10::ValueError, says({file, ".svg, .png or .pdf"}));
  }
  BOOST_TEST(files_in(folder) == 0U);
}

BOOST_AUTO_TEST_CASE(
    the_source_is_written_without_graphviz,
    *torchtap_test::only_where([] { return !torchtap_test::is_emulated(); },
                               "the emulator does not say that a program could not be started")) {
  const trace::History history = history_of_elman(2);
  const TemporaryDirectory folder;
  const Path nothing(folder.path());
  for (const char* file : {"a.dot", "a.gv", "A.DOT"}) {
    history.draw(folder / file);
    BOOST_TEST(contents(folder / file) == history.dot());
  }
  BOOST_CHECK_EXCEPTION(history.draw(folder / "missing/a.dot"), c10::Error,
                        says({"trace::History::draw", "missing", "does not exist"}));
  BOOST_CHECK_EXCEPTION(history.draw(folder / "a.svg"), c10::Error,
                        says({"`dot` cannot be run", "apt install graphviz"}));
  BOOST_TEST(files_in(folder) == 3U);
}

BOOST_AUTO_TEST_CASE(a_failure_of_graphviz_is_an_error_and_leaves_no_file) {
  const trace::History history = history_of_elman(2);
  const TemporaryDirectory folder, programs;
  const Path ours(programs.path());
  write_program(programs, "echo half; echo 'syntax error in line 3' >&2; echo more >&2; exit 3");
  BOOST_CHECK_EXCEPTION(history.draw(folder / "a.svg"), c10::Error,
                        says({"failed with exit status 3: syntax error in line 3."}));
  write_program(programs, "kill -SEGV $$");
  BOOST_CHECK_EXCEPTION(history.draw(folder / "a.svg"), c10::Error, says({"was ended by signal 11"}));
  write_program(programs, "exit 0");
  BOOST_CHECK_EXCEPTION(history.draw(folder / "a.svg"), c10::Error, says({"drew nothing"}));
  BOOST_TEST(files_in(folder) == 0U);
  // What it is given, and what becomes of it.
  write_program(programs, "echo \"$@\"; while read -r line; do printf '%s\\n' \"$line\"; done");
  history.draw(folder / "a.png");
  std::istringstream lines(contents(folder / "a.png"));
  std::string first;
  std::getline(lines, first);
  BOOST_TEST(first == "-Tpng");
  BOOST_TEST(read(std::string(std::istreambuf_iterator<char>(lines), {})).boxes.size() ==
             static_cast<std::size_t>(history.size()));
  BOOST_TEST(files_in(folder) == 1U);
}

BOOST_AUTO_TEST_CASE(graphviz_is_ended_when_its_time_is_over) {
  const trace::History history = history_of_elman(2);
  const TemporaryDirectory folder, programs;
  const std::string id = programs / "id";
  write_program(programs, "echo $$ > " + id + "; exec /bin/sleep 1000");
  const Path ours(programs.path());
  // Long enough for the program to begin on a busy machine.
  BOOST_CHECK_EXCEPTION(history.draw(folder / "a.pdf", DrawOptions().time_limit(4)), c10::Error,
                        says({"took longer than 4 s", "time_limit"}));
  BOOST_TEST(files_in(folder) == 0U);
  const std::string process = contents(id);
  BOOST_REQUIRE(!process.empty());
  BOOST_TEST(!fs::exists("/proc/" + process.substr(0, process.find('\n'))));
}

BOOST_AUTO_TEST_CASE(what_takes_graphviz_too_long_is_drawn_with_less) {
  const trace::History history = history_of_resnet();
  const TemporaryDirectory folder, programs;
  // Sleeps where there is much to draw.
  write_program(programs,
                "text=; lines=0; while read -r line; do text=\"$text$line\n\"; lines=$((lines+1)); done; "
                "[ $lines -gt 60 ] && exec /bin/sleep 1000; printf '%b' \"$text\"");
  const Path ours(programs.path());
  BOOST_TEST(drawn(history).boxes.size() > 40U);
  history.draw(folder / "a.svg", DrawOptions().time_limit(4));
  const std::string less = contents(folder / "a.svg");
  BOOST_TEST(less.find("Reduced from " + std::to_string(history.size()) + " nodes: modules at depth") !=
                 std::string::npos,
             less);
}

BOOST_AUTO_TEST_CASE(graphviz_draws_what_the_history_has,
                     *utf::precondition(HasGraphviz()) * utf::label("graphviz")) {
  const trace::History history = history_of_resnet();
  const TemporaryDirectory folder;
  history.draw(folder / "a.svg");
  const std::string svg = contents(folder / "a.svg");
  for (const std::string& label : history.labels()) {
    BOOST_TEST(svg.find(">" + label + "</text>") != std::string::npos, label);
  }
  const std::regex node("class=\"node\""), edge("class=\"edge\""), cluster("class=\"cluster\"");
  const auto count = [&](const std::regex& what) {
    return static_cast<std::size_t>(
        std::distance(std::sregex_iterator(svg.begin(), svg.end(), what), std::sregex_iterator()));
  };
  BOOST_TEST(count(node) == static_cast<std::size_t>(history.size()));
  BOOST_TEST(count(edge) == edges_of(history).size());
  BOOST_TEST(count(cluster) == 7U);
  history.draw(folder / "a.png");
  BOOST_TEST(contents(folder / "a.png").substr(1, 3) == "PNG");
  history.draw(folder / "a.pdf", DrawOptions().rolled(true).depth(1));
  BOOST_TEST(contents(folder / "a.pdf").substr(0, 5) == "%PDF-");
  BOOST_TEST(files_in(folder) == 3U);
}

BOOST_AUTO_TEST_CASE(graphviz_reads_strange_texts,
                     *utf::precondition(HasGraphviz()) * utf::label("graphviz")) {
  const trace::History history = history_of_elman(2);
  const TemporaryDirectory folder;
  const std::string strange = "a \"b\" \\N <c> {d|e} %s";
  history.draw(folder / "a.svg", DrawOptions().style([&](const trace::Node& node, Attributes& attributes) {
    if (node.type() == "zeros") attributes["label"] = strange + "\nsecond";
  }));
  const std::string svg = contents(folder / "a.svg");
  BOOST_TEST(svg.find("a &quot;b&quot; \\N &lt;c&gt; {d|e} %s</text>") != std::string::npos);
  BOOST_TEST(svg.find(">second</text>") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
