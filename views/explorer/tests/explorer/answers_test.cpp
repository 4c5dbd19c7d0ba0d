// What the page is told of runs: graphs, health, differences, and all of it in one file.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <fstream>
#include <sstream>

#include <torchtap/json/json.hpp>
#include <torchtap/views/explorer/detail/assets.hpp>
#include <torchtap/views/explorer/detail/export.hpp>
#include <torchtap/views/explorer/detail/file_run.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(answers)

using namespace support;
namespace parts = explorer::detail;
using torchtap::json::Json;
using torchtap::json::parse;
using torchtap_test::says;
using torchtap_test::TemporaryDirectory;

namespace {

/// The call with this path and number in a forward.
const Json& call_at(const Json& graph, const char* path, int call) {
  for (const auto& one : graph["calls"]) {
    if (one["path"] == path && one["call"] == call) return one;
  }
  BOOST_REQUIRE_MESSAGE(false, "no call of " << path);
  throw std::logic_error(path);
}

/// The logarithm, which is NaN of what is below zero.
struct LogImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.log(); }
};
TORCH_MODULE(Log);

}  // namespace

BOOST_AUTO_TEST_CASE(a_graph_names_calls_ports_parameters_and_series) {
  Net net;
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  for (const int batch : {2, 3}) {
    const auto [y, z] = net->forward(torch::randn({batch, 3, 8, 8}));
    y.sum().backward();
  }
  auto& run = *parts::models_of(watched).first()->run();
  const Json graph = parse(run.graph(Mode::train).json);
  BOOST_TEST(graph["forwards"] == 2);
  BOOST_TEST(graph["edges"].size() == expected_edges().size());
  const Json& root = graph["calls"][0];
  BOOST_TEST(root["id"] == 0);
  BOOST_TEST(root["parent"].is_null());
  BOOST_TEST(root["type"] == "Net");
  BOOST_TEST(root["inputs"][0]["shape"][0].is_null());  // 2 and 3
  BOOST_TEST(root["inputs"][0]["shape"][1] == 3);
  BOOST_TEST(root["outputs"].size() == 2U);
  const Json& fc = call_at(graph, "fc", 0);
  BOOST_TEST(fc["parent"] == 0);
  BOOST_TEST(fc["name"] == "fc");
  BOOST_TEST(fc["seen"] == 2);
  BOOST_TEST(fc["attributes"] == "in_features=16, out_features=10, bias=true");
  BOOST_TEST(fc["parameters"][0]["name"] == "weight");
  BOOST_TEST(fc["parameters"][0]["shape"][0] == 10);
  BOOST_TEST(fc["parameters"][0]["learnable"].get<bool>());
  const Json series = parts::series_json(run);
  const auto check_series = [&](int id, const std::string& what, int call, const std::string& mode) {
    BOOST_REQUIRE(id >= 0);
    const auto& one = series[static_cast<std::size_t>(id)];
    BOOST_TEST(one["id"] == id);
    BOOST_TEST((one["what"] == what));
    BOOST_TEST(one["call"] == call);
    BOOST_TEST((one["mode"] == mode));
    BOOST_TEST(one["columns"] == 2);
    BOOST_TEST(one["last"]["step"] == 1);
    BOOST_TEST(one["first_nan"].is_null());
  };
  const int id = fc["id"].get<int>();
  check_series(fc["series"]["input"][0].get<int>(), "input", id, "train");
  check_series(fc["series"]["output"][0].get<int>(), "output", id, "train");
  check_series(fc["series"]["grad_input"][0].get<int>(), "grad_input", id, "train");
  check_series(fc["series"]["grad_output"][0].get<int>(), "grad_output", id, "train");
  check_series(fc["parameters"][1]["series"].get<int>(), "parameter", id, "");
  check_series(fc["parameters"][1]["grad_series"].get<int>(), "parameter_grad", id, "");
  // The shared ReLU is called twice, in two places.
  BOOST_TEST(call_at(graph, "stem.relu", 0)["parent"] == call_at(graph, "stem", 0)["id"].get<int>());
  BOOST_TEST(call_at(graph, "stem.relu", 1)["parent"] == call_at(graph, "block", 0)["id"].get<int>());
  // In the order of execution.
  std::vector<std::string> names;
  for (const auto& one : graph["calls"]) names.emplace_back(one["name"].get<std::string>());
  const std::vector<std::string> expected{"",      "stem", "c1", "n1",   "relu",
                                          "block", "c2",   "n2", "down", "relu"};
  for (std::size_t i = 1; i < expected.size(); ++i) BOOST_TEST(names[i] == expected[i]);
}

BOOST_AUTO_TEST_CASE(names_are_data_whatever_they_look_like) {
  struct OddImpl : nn::Module {
    nn::Linear a{2, 2};
    std::string name;
    explicit OddImpl(std::string given) : name(std::move(given)) { register_module(name, a); }
    at::Tensor forward(const at::Tensor& x) { return a(x); }
  };
  TORCH_MODULE(Odd);
  for (const std::string& name : {std::string("<img src=x onerror=alert(1)>"), std::string("</script>"),
                                  std::string("\xc3\xbc\xe2\x9c\x93"), std::string("bad \xff byte"),
                                  std::string(500, 'x'), std::string("\"\\\n")}) {
    Odd net(name);
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).name(name));
    watched.attach(*net);
    net->forward(torch::randn({1, 2}));
    const Json graph = parse(parts::models_of(watched).first()->run()->graph(Mode::train).json);
    BOOST_TEST(graph["calls"].size() == 2U);
    const std::string all = parts::export_json({parts::models_of(watched).first()->run()});
    BOOST_TEST(all.find('<') == std::string::npos);
    (void)parse(all);
    check_no_errors(watched);
  }
}

BOOST_AUTO_TEST_CASE(the_first_nan_leads_to_the_call_that_made_it) {
  torch::manual_seed(0);
  nn::Sequential net(nn::Linear(4, 4), Log(), nn::ReLU());
  {
    const torch::NoGradGuard no_grad;
    net->named_parameters()["0.weight"].copy_(torch::eye(4));
    net->named_parameters()["0.bias"].zero_();
  }
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  for (int step = 0; step < 4; ++step)
    net->forward(torch::full({1, 4}, step == 2 ? -1.0 : 3.0)).sum().backward();
  auto& run = *parts::models_of(watched).first()->run();
  const Json health = parts::health_json(run);
  const Json graph = parse(run.graph(Mode::train).json);
  const Json& bad = health["first_bad"];
  BOOST_TEST(bad["step"] == 2);
  BOOST_TEST(bad["what"] == "nan");
  BOOST_TEST(bad["call"] == call_at(graph, "1", 0)["id"].get<int>());
  BOOST_TEST(bad["producer"].get<bool>());
}

BOOST_AUTO_TEST_CASE(a_call_is_no_producer_of_what_it_was_given_or_may_have_been) {
  struct NamedImpl : nn::Module {
    nn::Linear a{4, 4};
    Log log;
    NamedImpl() {
      register_module("a", a);
      register_module("log", log);
    }
    at::Tensor forward(const at::Tensor& x, bool negative, bool between) {
      const at::Tensor y = negative ? -a(x).abs() : a(x).abs();
      return log(between ? explorer::attach(y.log(), "bad") : y);
    }
  };
  TORCH_MODULE(Named);
  const auto first_bad = [](explorer::ExplorerOptions options, bool negative, bool between, double gradient) {
    torch::manual_seed(0);
    Named net;
    explorer::Explorer watched(options.every(1));
    watched.attach(*net);
    const at::Tensor y = net->forward(torch::ones({1, 4}), negative, between);
    (y * gradient).sum().backward();
    auto& run = *parts::models_of(watched).first()->run();
    const Json health = parts::health_json(run);
    const Json graph = parse(run.graph(Mode::train).json);
    const Json& bad = health["first_bad"];
    for (const auto& one : graph["calls"]) {
      if (one["id"] == bad["call"].get<int>())
        return one["path"].get<std::string>() + std::string(bad["producer"].get<bool>() ? " made it" : "");
    }
    return std::string("none");
  };
  const explorer::ExplorerOptions all, outputs = explorer::ExplorerOptions().record(explorer::Output);
  BOOST_TEST(first_bad(all, true, false, 1) == "log made it");
  BOOST_TEST(first_bad(outputs, true, false, 1) == "log");
  BOOST_TEST(first_bad(all, true, true, 1) == "bad");
  BOOST_TEST(first_bad(all, false, false, std::nan("")) == "log");  // the loss made it
}

BOOST_AUTO_TEST_CASE(dead_and_saturated_values_are_marked) {
  nn::Sequential net(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4), nn::Tanh());
  {
    const torch::NoGradGuard no_grad;
    net->named_parameters()["0.bias"].fill_(-100);
    net->named_parameters()["2.bias"].fill_(50);
  }
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  for (int step = 0; step < 3; ++step) (net->forward(torch::rand({8, 4})).sum() * 1e4).backward();
  auto& run = *parts::models_of(watched).first()->run();
  const Json health = parts::health_json(run);
  const Json graph = parse(run.graph(Mode::train).json);
  BOOST_TEST(health["first_bad"].is_null());
  std::set<std::string> marks;
  for (const auto& mark : health["marks"]) {
    for (const auto& call : graph["calls"]) {
      if (call["id"] == mark["call"].get<int>())
        marks.insert(call["path"].get<std::string>() + " " + mark["kind"].get<std::string>() + " " +
                     mark["what"].get<std::string>());
    }
  }
  BOOST_TEST(marks.count("1 dead_relu output") == 1U);
  BOOST_TEST(marks.count("3 saturated output") == 1U);
  BOOST_TEST(marks.count("0 all_zero output") == 0U);
  BOOST_TEST(marks.count(" dead_relu output") == 0U);
}

BOOST_AUTO_TEST_CASE(gradients_have_the_verdict_of_the_report) {
  nn::Sequential net(nn::Linear(4, 4), nn::Linear(4, 4), nn::Linear(4, 4));
  {
    const torch::NoGradGuard no_grad;
    net->named_parameters()["2.weight"].fill_(1e-6);  // what comes before it has tiny gradients
  }
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  const torch::Tensor input = torch::rand({8, 4});
  const auto step = [&](double scale) { (net->forward(input).sum() * scale).backward(); };
  const auto marks = [&] {
    auto& run = *parts::models_of(watched).first()->run();
    const auto names = run.call_names();
    const Json health = parts::health_json(run);
    std::set<std::string> found;
    for (const auto& mark : health["marks"]) {
      const std::string what = mark["what"].get<std::string>();
      if (what == "parameter_grad" && mark["kind"].get<std::string>() != "update_ratio")
        found.insert(names.at(mark["call"].get<int>()).path + " " + mark["kind"].get<std::string>() +
                     " since " + std::to_string(mark["since"].get<int>()));
    }
    return found;
  };
  step(1);
  BOOST_TEST((marks() == std::set<std::string>{"2 exploding_gradient since 0"}));
  net->zero_grad();
  step(1e20);
  BOOST_TEST((marks() == std::set<std::string>{"0 exploding_gradient since 1", "1 exploding_gradient since 1",
                                               "2 exploding_gradient since 0"}));
}

BOOST_AUTO_TEST_CASE(of_two_runs_the_module_that_was_changed_comes_first) {
  const TemporaryDirectory directory;
  const auto record = [&](const std::string& name, double scale) {
    torch::manual_seed(1);
    nn::Sequential net(nn::Linear(8, 8), nn::Tanh(), nn::Linear(8, 8));
    if (scale != 1) {
      const torch::NoGradGuard no_grad;
      net->named_parameters()["2.weight"].mul_(scale);
    }
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(directory / name));
    watched.attach(*net);
    for (int step = 0; step < 3; ++step) net->forward(torch::randn({16, 8})).pow(2).mean().backward();
  };
  record("a", 1);
  record("b", 20);
  record("c", 1);
  const auto a = std::make_shared<parts::FileRun>(directory / "a"),
             b = std::make_shared<parts::FileRun>(directory / "b"),
             c = std::make_shared<parts::FileRun>(directory / "c");
  const Json graph = parse(a->graph(Mode::train).json);
  const Json different = parse(parts::answer({a, b}, "/api/v1/compare?a=r0&b=r1&step=2").body);
  BOOST_REQUIRE(different.size() > 10U);
  const int changed = call_at(graph, "2", 0)["id"].get<int>();
  int forward = -1;  // the first of those that are no gradient, which differ throughout
  double before = std::numeric_limits<double>::infinity();
  for (const auto& pair : different) {
    const double distance = pair["wasserstein"].is_number() ? pair["wasserstein"].get<double>() : before;
    BOOST_TEST(distance <= before);
    before = distance;
    const std::string what = pair["what"].get<std::string>();
    if (forward < 0 && what.find("grad") == std::string::npos) forward = pair["call"].get<int>();
    // In front of the change nothing differs, and behind it everything from the first step on.
    if (pair["call"].get<int>() < changed && pair["call"].get<int>() != 0 &&
        what.find("grad") == std::string::npos) {
      BOOST_TEST(distance == 0);
      BOOST_TEST(pair["first_step"].is_null());
    }
  }
  BOOST_TEST((forward == changed || forward == 0));  // its output is that of the whole model
  const Json same = parts::compare_json(*a, *c, 2);
  for (const auto& pair : same) {
    BOOST_TEST(pair["wasserstein"].get<double>() == 0);
    BOOST_TEST(pair["kl"].get<double>() < 1e-12);
    BOOST_TEST(pair["first_step"].is_null());
  }
}

BOOST_AUTO_TEST_CASE(a_run_fits_into_one_file) {
  BOOST_TEST(parts::base64("") == "");
  BOOST_TEST(parts::base64("f") == "Zg==");
  BOOST_TEST(parts::base64("fo") == "Zm8=");
  BOOST_TEST(parts::base64("foo") == "Zm9v");
  BOOST_TEST(parts::base64("foob") == "Zm9vYg==");
  const TemporaryDirectory directory;
  nn::Sequential net(nn::Linear(4, 4));
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  net->forward(torch::randn({2, 4})).sum().backward();
  const Json all = parse(parts::export_json({parts::models_of(watched).first()->run()}));
  BOOST_TEST(all["runs"].size() == 1U);
  BOOST_TEST(all["r0"]["graph"]["train"]["calls"].size() == 2U);
  BOOST_TEST((all["r0"]["columns"] ==
              parts::base64(parts::columns_bytes(*parts::models_of(watched).first()->run(), {}))));
  if (parts::find_asset("/export.html") == nullptr) {
    BOOST_CHECK_EXCEPTION(watched.export_page(directory / "page.html"), c10::Error,
                          says({"without the page"}));
    return;
  }
  std::filesystem::create_symlink("page.html", directory / "link.html");
  std::ofstream(directory / "page.html") << "old";
  watched.export_page(directory / "link.html");
  BOOST_TEST(std::filesystem::is_symlink(directory / "link.html"));
  std::ostringstream page;
  page << std::ifstream(directory / "page.html").rdbuf();
  BOOST_TEST(page.str().find("@TORCHTAP_") == std::string::npos);
  BOOST_TEST(page.str().find("id=\"torchtap-data\">{\"runs\":[") != std::string::npos);
  BOOST_CHECK_EXCEPTION(watched.export_page(directory / "none/page.html"), c10::Error,
                        says({"explorer::export_page", "none", "does not exist"}));
}

BOOST_AUTO_TEST_SUITE_END()
