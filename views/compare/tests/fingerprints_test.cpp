// Fingerprints of models that run: what is written, by which thread, and what the program notices of it.
#include <torch/torch.h>

#include <filesystem>
#include <thread>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/views/compare/fingerprints.hpp>
#include <torchtap/views/compare/operations.hpp>
#include <torchtap/views/compare/verdict.hpp>

#include "net.hpp"

using namespace torchtap_test;
using compare::CallId;
using compare::Fingerprints;
using compare::FingerprintsOptions;
using compare::Run;

namespace {

torch::nn::Sequential model() {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                            torch::nn::BatchNorm2d(8), torch::nn::ReLU(), torch::nn::Flatten(),
                            torch::nn::Linear(8 * 24 * 24, 10));
  net->eval();
  return net;
}

/// The paths and kinds of the events, in their order.
std::vector<std::string> events(const Run& run, std::size_t sequence = 0) {
  std::vector<std::string> all;
  for (const auto& event : run.sequences().at(sequence).events) {
    const auto& record = run.records()[event.record];
    all.push_back((record.kind == frames::Kind::forward_input ? "in " : "out ") + run.path(record) + " " +
                  std::to_string(record.sample));
  }
  return all;
}

struct File {
  std::string path;
  File()
      : path((std::filesystem::temp_directory_path() /
              ("prints-" + std::to_string(::getpid()) + "-" + std::to_string(++count)))
                 .string()) {}
  ~File() { std::filesystem::remove(path); }
  static inline int count = 0;
};

/// Throws in its second call.
struct FailingImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (++calls == 2) throw std::runtime_error("as it was told");
    return x + 1;
  }
  int calls = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(compare_fingerprints)

BOOST_AUTO_TEST_CASE(weights_inputs_and_outputs_are_written_and_nothing_is_changed) {
  const auto x = images();
  auto net = model();
  const auto before = net->forward(x);
  File file;
  {
    Fingerprints prints(file.path);
    prints.attach(net);
    const auto during = net->forward(x);
    BOOST_TEST(torch::equal(before, during));
    net->forward(x + 1);  // a second forward is not wanted
    prints.close();
    BOOST_TEST(prints.written() == 4 + 5 + 12);
  }
  BOOST_TEST(torch::equal(before, net->forward(x)));
  const Run run = Run::read(file.path);
  BOOST_TEST(run.header().at("language") == "c++");
  BOOST_TEST(contains(run.header().at("torch"), "."));
  std::map<std::string, at::Tensor> weights;
  for (const auto& parameter : net->named_parameters()) weights[parameter.key()] = parameter.value();
  for (const auto& buffer : net->named_buffers()) weights[buffer.key()] = buffer.value();
  BOOST_TEST(run.weights().size() == weights.size());
  for (const auto index : run.weights()) {
    const auto& record = run.records()[index];
    BOOST_TEST(compare::same_bits(*run.print(record), compare::fingerprint(weights.at(run.path(record)))));
  }
  const std::vector<std::string> expected = {"in  0",   "in 0 0", "out 0 0", "in 1 0", "out 1 0", "in 2 0",
                                             "out 2 0", "in 3 0", "out 3 0", "in 4 0", "out 4 0", "out  0"};
  BOOST_TEST(events(run) == expected, boost::test_tools::per_element());
  const auto& last = run.records()[run.sequences()[0].events.back().record];
  BOOST_TEST(compare::same_bits(*run.print(last), compare::fingerprint(before)));
}

BOOST_AUTO_TEST_CASE(weights_are_those_of_the_first_call) {
  auto net = model();
  File file;
  Fingerprints prints(file.path);
  prints.attach(net);
  {
    torch::NoGradGuard no_grad;
    net->parameters()[0].mul_(2);  // as a program that loads them
  }
  net->forward(images());
  prints.close();
  const Run run = Run::read(file.path);
  BOOST_TEST(compare::same_bits(*run.print(run.records()[run.weights()[0]]),
                                compare::fingerprint(net->parameters()[0])));
}

BOOST_AUTO_TEST_CASE(forwards_are_chosen) {
  const auto x = images();
  auto net = model();
  File all, some;
  Fingerprints every(all.path, FingerprintsOptions().forwards(0));
  Fingerprints third(some.path, FingerprintsOptions().forwards(1).skip(2));
  every.attach(net);
  third.attach(net);
  for (int i = 0; i < 4; ++i) net->forward(x + i);
  every.close();
  third.close();
  const Run of_all = Run::read(all.path), of_some = Run::read(some.path);
  BOOST_TEST(of_all.calls().size() == 4U * 6);
  BOOST_TEST(of_some.calls().size() == 6U);
  const auto& first = of_some.records()[of_some.sequences()[0].events[0].record];
  BOOST_TEST(first.sample == 0U);
  BOOST_TEST(compare::same_bits(*of_some.print(first), compare::fingerprint(x + 2)));
  BOOST_CHECK_THROW(Fingerprints("x.prints", FingerprintsOptions().forwards(-1)), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(each_thread_has_a_sequence) {
  auto net = model();
  File file;
  Fingerprints prints(file.path, FingerprintsOptions().forwards(2));
  prints.attach(net);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      torch::NoGradGuard no_grad;
      for (int i = 0; i < 5; ++i) net->forward(images() + t);
    });
  }
  for (auto& thread : threads) thread.join();
  prints.close();
  const Run run = Run::read(file.path);
  BOOST_TEST_REQUIRE(run.sequences().size() == 4U);
  BOOST_TEST(run.weights().size() == 9U);
  std::set<std::uint64_t> inputs;
  for (std::size_t t = 0; t < 4; ++t) {
    BOOST_TEST(events(run, t).size() == 24U);
    BOOST_TEST(events(run, t)[0] == "in  0");
    BOOST_TEST(events(run, t)[23] == "out  1");
    inputs.insert(run.records()[run.sequences()[t].events[0].record].digest[0]);
  }
  BOOST_TEST(inputs.size() == 4U);
}

BOOST_AUTO_TEST_CASE(an_exception_ends_its_call_alone) {
  torch::nn::Sequential net(torch::nn::ReLU(), torch::nn::AnyModule(std::make_shared<FailingImpl>()),
                            torch::nn::Tanh());
  File file;
  Fingerprints prints(file.path, FingerprintsOptions().forwards(0));
  prints.attach(net);
  net->forward(torch::ones(3));
  BOOST_CHECK_THROW(net->forward(torch::ones(3)), std::runtime_error);
  net->forward(torch::ones(3));
  prints.close();
  const Run run = Run::read(file.path);
  std::size_t roots = 0;
  for (const auto& call : run.calls()) {
    if (run.path(call).empty()) ++roots;
    if (run.path(call) == "2") BOOST_TEST(call.outputs.size() == 1U);
  }
  BOOST_TEST(roots == 3U);
}

BOOST_AUTO_TEST_CASE(all_of_a_call_is_written_with_its_operations) {
  const auto x = images();
  auto net = model(), other = model();
  std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(other[1])->options.eps(1e-2);
  File a, b;
  for (auto& [one, file] : {std::pair(&net, &a), std::pair(&other, &b)}) {
    Fingerprints prints(file->path, FingerprintsOptions().values({CallId{"1", 0}, CallId{"", 0}}));
    prints.attach(*one);
    torch::NoGradGuard no_grad;
    (*one)->forward(x);
    prints.close();
  }
  const Run mine = Run::read(a.path), its = Run::read(b.path);
  BOOST_TEST(mine.weights().empty());
  BOOST_TEST(mine.calls().size() == 2U);
  const auto& record = mine.records()[mine.calls()[0].inputs[0]];
  BOOST_TEST((record.holds == compare::Record::Holds::tensor));
  BOOST_TEST(compare::same_bits(*mine.print(record), compare::fingerprint(x)));
  BOOST_TEST(!mine.operations().empty());
  for (const char* path : {"", "1"}) {
    const std::string operation = compare::first_operation({mine, path, 0}, {its, path, 0});
    BOOST_TEST(operation.rfind("aten::native_batch_norm", 0) == 0U, operation);
    BOOST_TEST(compare::first_operation({mine, path, 0}, {mine, path, 0}).empty());
  }
  BOOST_TEST(compare::first_operation({mine, "4", 0}, {its, "4", 0}).empty());
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_is_said_and_the_program_goes_on) {
  File file;
  write(file.path, "not frames");
  BOOST_CHECK_EXCEPTION(Fingerprints{file.path}, c10::ValueError, [&](const c10::ValueError& error) {
    return contains(error.what(), file.path) && contains(error.what(), "holds no fingerprints");
  });
  BOOST_CHECK_THROW(Fingerprints("/no/such/folder/x.prints"), c10::Error);
  auto net = model();
  const auto expected = net->forward(images());
  Fingerprints full("/dev/full");
  full.attach(net);
  BOOST_TEST(torch::equal(net->forward(images()), expected));
  BOOST_CHECK_THROW(full.close(), c10::Error);
  // A reader that leaves.
  int ends[2];
  BOOST_TEST_REQUIRE(::pipe(ends) == 0);
  const std::string pipe = "/proc/self/fd/" + std::to_string(ends[1]);
  {
    Fingerprints left(pipe, FingerprintsOptions().forwards(0));
    ::close(ends[0]);
    ::close(ends[1]);
    left.attach(net);
    for (int i = 0; i < 10; ++i) BOOST_TEST(torch::equal(net->forward(images()), expected));
    BOOST_CHECK_THROW(left.close(), c10::Error);
  }
}

BOOST_AUTO_TEST_CASE(a_model_may_die_first_and_none_may_be_reached) {
  File file;
  Fingerprints prints(file.path);
  {
    auto net = model();
    prints.attach(net);
    net->forward(images());
  }
  prints.close();
  BOOST_TEST(Run::read(file.path).calls().size() == 6U);
  struct UnreachableImpl : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return x; }
  };
  const auto unreachable = std::make_shared<UnreachableImpl>();
  BOOST_CHECK_THROW(Fingerprints(file.path).attach(*unreachable), c10::ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
