// Several models of one explorer: each is a run of its own.
#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <torch/torch.h>

#include <fstream>
#include <sstream>

#include <torchtap/views/explorer/detail/file_run.hpp>
#include <torchtap/views/explorer/detail/folders.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>
#include <torchtap/views/explorer/detail/viewer_notices.hpp>
#include <torchtap/views/explorer/detail/watched_models.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(several)

using namespace support;
namespace parts = explorer::detail;
using torchtap_test::says;
using torchtap_test::TemporaryDirectory;

namespace {

struct GeneratorImpl : nn::Module {
  nn::Linear up{5, 16};
  nn::BatchNorm1d norm{16};
  GeneratorImpl() {
    register_module("up", up);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& noise) { return explorer::attach(norm(up(noise)).tanh(), "image"); }
};
TORCH_MODULE(Generator);

struct CriticImpl : nn::Module {
  nn::Linear hidden{16, 8}, score{8, 1};
  CriticImpl() {
    register_module("hidden", hidden);
    register_module("score", score);
  }
  at::Tensor forward(const at::Tensor& x) { return score(hidden(x).relu()); }
};
TORCH_MODULE(Critic);

const std::set<std::string> generator_edges{
    "net: In0 -> up.0", "net: up.0 -> norm.0", "net: norm.0 -> image.0", "net: image.0 -> Out0",
    "up: In0 -> Out0",  "norm: In0 -> Out0",   "image: In0 -> Out0"};
const std::set<std::string> critic_edges{"net: In0 -> hidden.0", "net: hidden.0 -> score.0",
                                         "net: score.0 -> Out0", "hidden: In0 -> Out0", "score: In0 -> Out0"};

struct Gan {
  Generator generator;
  Critic critic;
  torch::optim::SGD of_generator{generator->parameters(), 0.1}, of_critic{critic->parameters(), 0.1};
  std::vector<at::Tensor> seen;

  void step() {
    critic->zero_grad();
    const at::Tensor fake = generator->forward(torch::randn({6, 5}));
    (critic->forward(torch::randn({6, 16})).mean() - critic->forward(fake.detach()).mean()).backward();
    of_critic.step();
    generator->zero_grad();
    const at::Tensor judged = critic->forward(fake);
    judged.mean().backward();
    of_generator.step();
    seen.push_back(fake.detach());
    seen.push_back(judged.detach());
  }
};

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::set<std::string> edges_of_run(const std::shared_ptr<parts::WatchedModel>& session) {
  return edges_of_session(*session, Mode::train);
}

std::int64_t columns_of(const parts::WatchedModel& session, const std::string& path, parts::What what) {
  const auto names = session.run()->call_names();
  std::int64_t found = -1;
  session.run()->each_series([&](const parts::Series& series) {
    if (series.key().what == what && names.at(series.key().call).path == path && series.key().index == 0)
      found = static_cast<std::int64_t>(series.columns().size());
  });
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(adversaries_train_in_turns_and_to_the_same_bits) {
  const auto train = [](bool watch) {
    torch::manual_seed(3);
    Gan gan;
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).name("gan"));
    if (watch) {
      watched.attach(*gan.generator);
      watched.attach(*gan.critic);
    }
    for (int step = 0; step < 5; ++step) {
      gan.step();
      watched.scalar("step", step);
    }
    check_no_errors(watched);
    if (watch) {
      const auto sessions = parts::models_of(watched).all_watched();
      BOOST_REQUIRE(sessions.size() == 2U);
      check_same(edges_of_run(sessions[0]), generator_edges);
      check_same(edges_of_run(sessions[1]), critic_edges);
      BOOST_TEST(sessions[0]->run()->info().name == "gan: Generator");
      BOOST_TEST(sessions[1]->run()->info().name == "gan: Critic");
      // The generator is trained once in a round, the critic twice.
      BOOST_TEST(sessions[0]->step() == 4);
      BOOST_TEST(sessions[1]->step() == 9);
      BOOST_TEST(watched.step() == 4);
      BOOST_TEST(columns_of(*sessions[0], "up", parts::What::grad_output) == 5);
      BOOST_TEST(columns_of(*sessions[0], "image", parts::What::attach) == 5);
      BOOST_TEST(columns_of(*sessions[1], "score", parts::What::grad_output) == 10);
      BOOST_TEST(columns_of(*sessions[1], "score", parts::What::parameter_grad) == 10);
      BOOST_TEST(columns_of(*sessions[1], "image", parts::What::attach) == -1);
      for (const auto& session : sessions) BOOST_TEST(session->run()->scalars(-1).at("step").size() == 5U);
    }
    for (const auto& one : gan.generator->named_parameters()) gan.seen.push_back(one.value().detach());
    for (const auto& one : gan.generator->named_buffers()) gan.seen.push_back(one.value());
    for (const auto& one : gan.critic->named_parameters()) gan.seen.push_back(one.value().detach());
    return gan.seen;
  };
  const auto plain = train(false), observed = train(true);
  BOOST_REQUIRE(plain.size() == observed.size());
  for (std::size_t i = 0; i < plain.size(); ++i) BOOST_TEST(plain[i].equal(observed[i]));
}

BOOST_AUTO_TEST_CASE(a_directory_has_a_file_for_each_and_all_are_shown) {
  const TemporaryDirectory directory;
  const std::string path = directory / "gan";
  torch::manual_seed(3);
  Gan gan;
  auto watched = std::make_unique<explorer::Explorer>(explorer::ExplorerOptions().every(1).save(path));
  watched->attach(*gan.generator);
  parts::Folders folders({path});
  parts::Runs runs = folders.open();
  BOOST_REQUIRE(runs.size() == 1U);
  BOOST_TEST(runs[0]->info().name == "gan");
  BOOST_TEST(folders.appeared().empty());
  watched->attach(*gan.critic, {}, "judge");
  const parts::Runs more = folders.appeared();
  BOOST_REQUIRE(more.size() == 1U);
  BOOST_TEST(folders.appeared().empty());
  runs.push_back(more[0]);
  for (int step = 0; step < 3; ++step) gan.step();
  for (const auto& run : runs) run->refresh();
  BOOST_TEST(runs[0]->info().name == "gan: Generator");
  BOOST_TEST(runs[1]->info().name == "gan: judge");
  BOOST_TEST(runs[0]->steps().second == 2);
  BOOST_TEST(runs[1]->steps().second == 5);
  const auto sessions = parts::models_of(*watched).all_watched();
  std::vector<std::string> graphs;
  std::vector<torchtap::json::Json> series;
  for (std::size_t i = 0; i < 2; ++i) {
    BOOST_TEST(runs[i]->info().state == "running");
    const auto& run = sessions[i]->run();
    graphs.push_back(run->graph(Mode::train).json);
  }
  const std::string page = directory / "page.html";
  watched->export_page(page);
  BOOST_TEST(text_of(page).find("gan: judge") != std::string::npos);
  watched.reset();
  for (const auto& session : sessions) series.push_back(parts::series_json(*session->run()));
  const parts::Runs read = parts::Folders({path}).open();
  BOOST_REQUIRE(read.size() == 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    BOOST_TEST(read[i]->info().state == "finished");
    BOOST_TEST(read[i]->graph(Mode::train).json == graphs[i]);
    BOOST_TEST((parts::series_json(*read[i]) == series[i]));
  }
  BOOST_CHECK_THROW(parts::Folders({directory / "other"}).open(), c10::Error);
}

BOOST_AUTO_TEST_CASE(steps_may_be_counted_for_all) {
  Gan gan;
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*gan.generator);
  watched.step(10);
  watched.attach(*gan.critic);
  for (std::int64_t step = 11; step <= 13; ++step) {
    watched.step(step);
    gan.step();
  }
  for (const auto& session : parts::models_of(watched).all_watched()) BOOST_TEST(session->step() == 13);
  BOOST_TEST(columns_of(*parts::models_of(watched).all_watched()[1], "score", parts::What::output) == 3);
  BOOST_CHECK_EXCEPTION(watched.step(13), c10::ValueError, says({"steps have to grow", "13"}));
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(torchscript_beside_cpp_a_teacher_and_its_student) {
  torch::jit::Module teacher = torch::jit::load(std::string(TORCHTAP_TEST_MODELS) + "/resnet18.script.pt");
  teacher.eval();
  nn::Sequential student(nn::Flatten(), nn::Linear(3 * 32 * 32, 1000));
  nn::Sequential other(nn::Linear(3, 3));
  explorer::Explorer watched(explorer::ExplorerOptions().every(1).name("distil"));
  watched.attach(teacher, {}, "teacher");
  watched.attach(*student);
  watched.attach(*other);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor x = torch::randn({2, 3, 32, 32});
    at::Tensor wanted;
    {
      const torch::NoGradGuard no_grad;
      wanted = teacher.forward({x}).toTensor();
    }
    (student->forward(x) - wanted).square().mean().backward();
  }
  const auto sessions = parts::models_of(watched).all_watched();
  BOOST_REQUIRE(sessions.size() == 3U);
  BOOST_TEST(sessions[0]->run()->info().name == "distil: teacher");
  BOOST_TEST(sessions[1]->run()->info().name == "distil: Sequential");
  BOOST_TEST(sessions[2]->run()->info().name == "distil: Sequential 2");
  BOOST_TEST(sessions[0]->step() == 1);
  BOOST_TEST(edges_of_session(*sessions[0], Mode::eval).count("net: conv1.0 -> bn1.0") == 1U);
  BOOST_TEST(edges_of_session(*sessions[1], Mode::train).count("net: 0.0 -> 1.0") == 1U);
  BOOST_TEST(!sessions[2]->run()->has(Mode::train));
  check_no_errors(watched);
}

struct OuterImpl : nn::Module {
  Critic inner;
  bool fails = true;
  OuterImpl() { register_module("inner", inner); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = inner(explorer::attach(x * 2, "twice"));
    TORCH_CHECK(!fails, "no");
    return y;
  }
};
TORCH_MODULE(Outer);

BOOST_AUTO_TEST_CASE(a_part_of_a_model_may_be_watched_too_and_both_may_throw) {
  Outer net;
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  watched.attach(*net->inner);
  for (int i = 0; i < 2; ++i) {
    BOOST_CHECK_THROW(net->forward(torch::randn({2, 16})), c10::Error);
    BOOST_CHECK_THROW(net->forward(torch::randn({2, 15})), c10::Error);  // in the inner one, too
  }
  net->fails = false;
  net->forward(torch::randn({2, 16}));
  const auto sessions = parts::models_of(watched).all_watched();
  std::set<std::string> outer{
      "net: In0 -> twice.0",       "twice: In0 -> Out0",         "net: twice.0 -> inner.0",
      "inner: In0 -> hidden.0",    "inner: hidden.0 -> score.0", "inner: score.0 -> Out0",
      "inner.hidden: In0 -> Out0", "inner.score: In0 -> Out0",   "net: inner.0 -> Out0"};
  check_same(edges_of_run(sessions[0]), outer);
  // The inner one returned twice before the outer one threw.
  check_same(edges_of_run(sessions[1]), critic_edges);
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(attach_names_a_tensor_of_the_model_that_runs_and_not_of_one_that_threw) {
  Outer first, second;
  second->fails = false;
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*first, {}, "first");
  watched.attach(*second, {}, "second");
  first->fails = false;
  first->forward(torch::randn({2, 16}));
  first->fails = true;
  BOOST_CHECK_THROW(first->forward(torch::randn({2, 16})), c10::Error);
  second->forward(torch::randn({2, 16}));
  second->forward(torch::randn({2, 16}));
  const auto sessions = parts::models_of(watched).all_watched();
  std::int64_t counted[2] = {0, 0};
  for (std::size_t i = 0; i < 2; ++i) {
    sessions[i]->run()->each_series([&](const parts::Series& series) {
      if (series.key().what != parts::What::attach) return;
      for (const auto& column : series.columns()) counted[i] += static_cast<std::int64_t>(column.count);
    });
  }
  BOOST_TEST(counted[0] == 2 * 32);  // one forward that returned and one that threw
  BOOST_TEST(counted[1] == 2 * 32);
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(says_why_a_model_cannot_be_watched_and_leaves_nothing) {
  const TemporaryDirectory directory;
  const std::string path = directory / "run";
  Net net;
  explorer::Explorer watched(explorer::ExplorerOptions().save(path));
  watched.attach(*net);
  BOOST_CHECK_EXCEPTION(watched.attach(*net), c10::ValueError,
                        says({"explorer::Explorer::attach", "watches this", "already"}));
  nn::ModuleList list;  // has no forward
  BOOST_CHECK_THROW(watched.attach(*list), c10::ValueError);
  BOOST_TEST(parts::runs_in(path) == (std::vector<std::int64_t>{1}), boost::test_tools::per_element());
  nn::Sequential other(nn::Linear(2, 2));
  watched.attach(*other);
  BOOST_TEST(parts::runs_in(path) == (std::vector<std::int64_t>{1, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_models_share_time_and_memory) {
  using Clock = parts::Pace::Clock;
  using std::chrono::milliseconds;
  const auto models = std::make_shared<std::atomic<int>>(2);
  const parts::Control control(0);
  parts::Pace one(explorer::ExplorerOptions().overhead(0.02), control, models),
      other(explorer::ExplorerOptions().overhead(0.02), control, models);
  Clock::time_point now{};
  Clock::duration spent{}, of_other{};
  for (std::int64_t step = 0; step < 40000; ++step) {
    now += milliseconds(10);
    for (parts::Pace* pace : {&one, &other}) {
      if (!pace->allows(step, now)) continue;
      const milliseconds cost(pace == &one ? 2 : 20);
      now += cost;
      spent += cost;
      if (pace == &other) of_other += cost;
      pace->spend(cost);
      pace->end_record();
    }
  }
  const auto share = [&](Clock::duration time) {
    return static_cast<double>(time.count()) / static_cast<double>(now.time_since_epoch().count());
  };
  BOOST_TEST(share(spent) <= 0.0205);
  BOOST_TEST(share(spent) > 0.015);
  BOOST_TEST(share(of_other) > 0.007);  // the dear one is not crowded out

  Gan gan;
  explorer::Explorer watched(explorer::ExplorerOptions().every(1).columns(256).memory(256 << 10));
  watched.attach(*gan.generator);
  watched.attach(*gan.critic);
  for (int step = 0; step < 100; ++step) gan.step();
  std::size_t bytes = 0;
  for (const auto& session : parts::models_of(watched).all_watched())
    session->run()->each_series([&](const parts::Series& series) { bytes += series.bytes(); });
  BOOST_TEST(bytes <= std::size_t{256} << 10U);
}

BOOST_AUTO_TEST_CASE(a_model_after_another_may_have_its_address) {
  explorer::Explorer watched(explorer::ExplorerOptions().every(1).name("folds"));
  constexpr int folds = 6;
  for (int fold = 0; fold < folds; ++fold) {
    nn::Sequential net(nn::Linear(4, 4), nn::ReLU());
    BOOST_REQUIRE_NO_THROW(watched.attach(*net));
    for (int step = 0; step <= fold; ++step) net->forward(torch::ones({2, 4})).sum().backward();
    BOOST_CHECK_EXCEPTION(watched.attach(*net), c10::ValueError, says({"watches this Sequential already"}));
  }
  const auto sessions = parts::models_of(watched).all_watched();
  BOOST_REQUIRE(sessions.size() == static_cast<std::size_t>(folds));
  for (int fold = 0; fold < folds; ++fold) {
    const auto& session = sessions[static_cast<std::size_t>(fold)];
    BOOST_TEST(session->step() == fold);
    BOOST_TEST(columns_of(*session, "0", parts::What::output) == fold + 1);
    BOOST_TEST(session->run()->info().state == (fold + 1 < folds ? "finished" : "running"));
  }
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(each_run_has_an_identity_of_its_own) {
  const TemporaryDirectory directory;
  std::set<std::string> identities;
  for (const char* const name : {"a", "b", "c"}) {
    nn::Sequential net(nn::Linear(4, 4));
    explorer::Explorer watched(explorer::ExplorerOptions().every(1).save(directory / name));
    watched.attach(*net);
    net->forward(torch::ones({2, 4})).sum().backward();
    const parts::Runs runs{parts::models_of(watched).first()->run()};
    const std::string identity = runs.front()->info().identity;
    identities.insert(identity);
    BOOST_TEST(parts::FileRun(directory / name).info().identity == identity);
    BOOST_TEST((parts::runs_json(runs)[0]["identity"] == identity));
    BOOST_TEST(parts::answer(runs, "/api/v1/runs/" + identity + "/graph").status == 200);
    for (const std::string& other : identities)
      BOOST_TEST(parts::answer(runs, "/api/v1/runs/" + other + "/graph").status ==
                 (other == identity ? 200 : 404));
    parts::Notices notices;
    BOOST_TEST(notices.next(runs).find("\"identity\":\"" + identity + '"') != std::string::npos);
    BOOST_TEST(notices.next(runs) == "");
  }
  BOOST_TEST(identities.size() == 3U);
  // Who comes hears of a run in which nothing has happened yet.
  const parts::Runs fresh{std::make_shared<parts::LiveRun>(parts::RunInfo{}, 8, 1 << 20, 1)};
  BOOST_TEST(parts::Notices().next(fresh).find("\"run\":\"r0\"") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
