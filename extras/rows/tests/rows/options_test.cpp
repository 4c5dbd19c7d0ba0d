// What the options refuse, what is left out and how it is said.
#include <array>
#include <thread>

#include <torchtap/reductions/reductions.hpp>
#include <torchtap/statistics/companion.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(options)

using namespace rows_test;
using tap::recorders::BackwardInput;
using tap::recorders::BackwardOutput;
using tap::recorders::BackwardParameter;

BOOST_AUTO_TEST_CASE(what_cannot_be_is_said) {
  const Folder folder;
  const auto says = [](const RecorderOptions& options, const std::string& part) {
    const std::string error = error_of([&] { ForwardOutput dump(options); });
    BOOST_TEST(contains(error, part), "no \"" << part << "\" in: " << error);
  };
  const std::string at = folder / "dump";
  says(RecorderOptions().rows({0}), "call spool(directory)");
  says(RecorderOptions().where("mask").spool(at), "call rows()");
  says(RecorderOptions().beside({"label"}).spool(at), "call rows()");
  says(RecorderOptions().rows({0}).memory_budget(100, at), "memory_budget");
  says(RecorderOptions().rows({0}).spool(at, spooling()).all_tensors(), "slot()");
  says(RecorderOptions().rows({0}).reduction(tap::reductions::Moments()).spool(at), "set one of them");
  BOOST_CHECK_THROW(RecorderOptions().rows({}), c10::ValueError);
  BOOST_CHECK_THROW(RecorderOptions().rows({1, 1}), c10::ValueError);
  BOOST_CHECK_THROW(RecorderOptions().beside({"a", "a"}), c10::ValueError);
  BOOST_CHECK_THROW(RecorderOptions().beside({""}), c10::ValueError);
  BOOST_CHECK_THROW(RecorderOptions().where(""), c10::ValueError);
  BOOST_CHECK_THROW(RecorderOptions().rows({0}).with("a", tap::recorders::output()),
                    c10::NotImplementedError);
  BOOST_CHECK_THROW(BackwardParameter(RecorderOptions().rows({0}).spool(at, spooling())), c10::ValueError);
  BOOST_TEST(!torchtap_test::fs::exists(at));
}

BOOST_AUTO_TEST_CASE(a_call_that_does_not_fit_is_left_out_and_counted) {
  const Folder folder;
  Net net;
  std::int64_t kept = 0;
  {
    ForwardOutput dump(keeping(folder / "dump"));
    dump.attach(*net, "first");
    std::int64_t left_out = 0;
    const auto forward = [&](Context::Names names, const std::string& why,
                             const at::Tensor& x = at::rand({2, 3, 6})) {
      const Context named(std::move(names));
      net->forward(x, true);
      if (why.empty()) {
        kept += 2 * 3;
      } else {
        ++left_out;
      }
      BOOST_TEST(dump.at("first").left_out() == left_out);
      BOOST_TEST(dump.at("first").samples() == kept);
    };
    const at::Tensor mask = at::ones({2, 3}, at::kBool), label = at::zeros({2}, at::kLong),
                     id = at::zeros({2, 3}, at::kLong);
    forward({{"mask", mask}, {"id", id}}, "no \"label\"");
    BOOST_TEST(contains(dump.at("first").note(), "the Context has no \"label\" in this forward"));
    forward({{"mask", mask}, {"label", label}, {"id", id}}, "");
    forward({{"label", label}, {"id", id}}, "no mask");
    forward({{"mask", at::ones({2, 4})}, {"label", label}, {"id", id}}, "a mask of another length");
    forward({{"mask", mask}, {"label", at::zeros({3}, at::kLong)}, {"id", id}}, "a label of another length");
    forward({{"mask", mask}, {"label", label}, {"id", at::zeros({2, 4}, at::kLong)}},
            "ids of another length");
    forward({{"mask", mask}, {"label", at::zeros({2})}, {"id", id}}, "labels of another dtype");
    forward({{"mask", mask}, {"label", label}, {"id", id}}, "rows of another shape", at::rand({2, 3, 7}));
    forward({{"mask", mask}, {"label", label}, {"id", id}}, "rows of another dtype",
            at::rand({2, 3, 6}).to(at::kDouble));
    forward({{"mask", mask}, {"label", at::zeros({}, at::kLong)}, {"id", id}}, "");  // one value for all
    forward({{"mask", at::ones({2})}, {"label", label}, {"id", id}}, "");  // a mask of the first dimension
    forward({{"mask", mask}, {"label", label}, {"id", at::sparse_coo_tensor({2, 3}, at::kLong)}}, "sparse");
    BOOST_TEST(dump.at("first").events() == 12);
  }
  const Rows rows(load(folder / "dump").at("first"));
  BOOST_TEST(rows.size() == kept);
  BOOST_TEST(rows.beside("label").size(0) == kept);
  BOOST_TEST(load(folder / "dump").at("first").not_recorded().left_out == 9);
}

BOOST_AUTO_TEST_CASE(dimensions_may_be_any_and_images_are_rows) {
  const Folder folder;
  Net net;
  const at::Tensor x = at::rand({4, 5, 3, 6});
  for (const auto& [name, dims] : std::map<std::string, std::vector<std::int64_t>>{
           {"a", {0}}, {"b", {0, 2}}, {"c", {2, 0}}, {"d", {-2}}}) {
    {
      ForwardOutput dump(RecorderOptions().rows(dims).spool(folder / name, spooling()));
      dump.attach(*net, "first");
      net->forward(x, false);
      net->forward(x[0], false);  // has other rows, or none
    }
    at::Tensor want = x.clone();
    want.select(-1, 1) += 1;
    if (name == "b") want = want.permute({0, 2, 1, 3}).reshape({12, 5, 6});
    if (name == "c") want = want.permute({2, 0, 1, 3}).reshape({12, 5, 6});
    if (name == "d") want = want.permute({2, 0, 1, 3});
    const Rows rows(load(folder / name).at("first"));
    BOOST_TEST(rows.slice(0, rows.size()).equal(want));
    BOOST_TEST(load(folder / name).at("first").not_recorded().left_out == 1);
  }
}

BOOST_AUTO_TEST_CASE(texts_are_kept) {
  const Folder folder;
  Net net;
  {
    ForwardOutput dump(RecorderOptions().rows({0, 1}).beside({"request"}).spool(folder / "dump", spooling()));
    dump.attach(*net, "first");
    for (const auto& texts :
         {tap::rows::texts({"größe", "b"}, 128), tap::rows::texts({"", std::string(64, 'x')})}) {
      const Context named("request", texts);
      net->forward(at::rand({2, 2, 6}), false);
    }
    const Context named("request", tap::rows::texts({std::string(200, 'x'), "y"}));
    net->forward(at::rand({2, 2, 6}), false);
    BOOST_TEST(contains(dump.at("first").note(), "largest width"));
  }
  const Rows rows(load(folder / "dump").at("first"));
  const std::vector<std::string> want{
      "größe", "größe", "b", "b", "", "", std::string(64, 'x'), std::string(64, 'x')};
  BOOST_TEST(tap::rows::strings(rows.beside("request")) == want, boost::test_tools::per_element());
  BOOST_CHECK_THROW(tap::rows::texts({"\xff"}), c10::ValueError);
  BOOST_CHECK_THROW(tap::rows::texts({std::string(65, 'x')}, 64), c10::ValueError);
  BOOST_CHECK_THROW(tap::rows::texts({"x"}, 63), c10::ValueError);
  BOOST_CHECK_THROW(tap::rows::strings(at::zeros({3})), c10::TypeError);
}

BOOST_AUTO_TEST_CASE(several_threads_run_forwards) {
  const Folder folder;
  Net net;
  {
    ForwardOutput dump(keeping(folder / "dump", spooling().shard_bytes(10000)));
    dump.attach(*net, "*");
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::int64_t i = 0; i < 100; ++i) {
          const std::int64_t first = (thread * 100 + i) * 64, b = 1 + i % 4, t = 3;
          const at::Tensor id = at::arange(first, first + b * t, at::kLong).reshape({b, t});
          const Context named({{"mask", id.remainder(4).ne(1)}, {"label", id.select(1, 0)}, {"id", id}});
          net->forward(numbered(first, b, t), i % 2 == 0);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  for (const char* path : {"first", "twice", "rare", "last"}) {
    const Rows rows(load(folder / "dump").at(path));
    BOOST_TEST(rows.beside("id").equal(numbers_of(rows.slice(0, rows.size()))));
    std::map<std::int64_t, std::int64_t> number_of;  // each forward has the rows of one
    bool forwards = true;
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      const std::int64_t number = numbers_of(rows.slice(i, i + 1)).item<std::int64_t>();
      forwards = forwards &&
                 number_of.try_emplace(rows.where(i).forward, number / 64).first->second == number / 64 &&
                 rows.where(i).place == number % 64;
    }
    BOOST_TEST(forwards);
  }
}

BOOST_AUTO_TEST_CASE(gradients_have_what_was_named_in_their_forward) {
  const Folder folder;
  Net net;
  std::vector<at::Tensor> want, labels;
  {
    BackwardOutput outputs(
        RecorderOptions().rows({0}).beside({"label"}).spool(folder / "outputs", spooling()));
    BackwardInput inputs(RecorderOptions().rows({0}).beside({"label"}).spool(folder / "inputs", spooling()));
    outputs.attach(*net, "*");
    inputs.attach(*net, "last");
    std::vector<at::Tensor> waiting;
    for (int i = 0; i < 60; ++i) {  // more than are remembered
      const at::Tensor label = at::full({3}, i, at::kLong);
      const Context named("label", label);
      waiting.push_back((net->forward(torch::rand({3, 6}, torch::requires_grad()), true) * (i + 1)).sum());
      if (i % 2 == 0) continue;  // two forwards before their backwards, in the other order
      waiting[1].backward();
      waiting[0].backward();
      waiting.clear();
    }
  }
  for (const char* path : {"first", "twice", "rare", "last"}) {
    const Rows rows(load(folder / "outputs").at(path));
    BOOST_TEST(rows.size() == (std::string(path) == "twice" ? 360 : 180));
    BOOST_TEST(rows.slice(0, rows.size()).select(1, 0).equal(rows.beside("label").to(at::kFloat) + 1));
  }
  const Rows rows(load(folder / "inputs").at("last"));
  BOOST_TEST(rows.slice(0, rows.size()).select(1, 0).equal(rows.beside("label").to(at::kFloat) + 1));
}

BOOST_AUTO_TEST_CASE(gradients_of_two_threads_have_what_their_own_thread_named) {
  const Folder folder;
  Net net;
  constexpr std::int64_t kForwards = 100;
  {
    BackwardOutput dump(
        RecorderOptions().rows({0}).beside({"label"}).spool(folder / "dump", spooling().shard_bytes(5000)));
    dump.attach(*net, "*");
    std::vector<std::thread> threads;
    for (std::int64_t thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&net, thread] {
        for (std::int64_t i = 0; i < kForwards; ++i) {
          const std::int64_t number = thread * 1000 + i;
          const Context named("label", at::full({3}, number, at::kLong));
          (net->forward(torch::rand({3, 6}, torch::requires_grad()), i % 3 == 0) * (number + 1))
              .sum()
              .backward();
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  for (const char* path : {"first", "twice", "last"}) {
    const Rows rows = load(folder / "dump").at(path).rows();
    const at::Tensor labels = rows.beside("label");
    BOOST_TEST(rows.size() == 2 * kForwards * 3 * (std::string(path) == "twice" ? 2 : 1));
    BOOST_TEST(rows.slice(0, rows.size()).select(1, 0).equal(labels.to(at::kFloat) + 1));
    std::map<std::int64_t, std::int64_t> label_of;  // each forward has the rows of one
    bool forwards = true;
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      const auto label = labels[i].item<std::int64_t>();
      forwards = forwards && label_of.try_emplace(rows.where(i).forward, label).first->second == label;
    }
    BOOST_TEST(forwards);
    BOOST_TEST(label_of.size() == 2 * kForwards);
  }
}

BOOST_AUTO_TEST_CASE(a_root_that_cannot_be_hooked_has_forwards_by_context) {
  const Folder folder;
  torch::nn::Sequential net{Step(), Step()};
  {
    ForwardOutput dump(RecorderOptions().rows({0}).beside({"id"}).spool(folder / "dump", spooling()));
    dump.attach(*net, "?");
    for (std::int64_t i = 0; i < 5; ++i) {
      const Context named("id", at::arange(i * 4, i * 4 + 4, at::kLong));
      net->forward(numbered(i * 4, 1, 4)[0]);
    }
  }
  const Rows first(load(folder / "dump").at("0")), second(load(folder / "dump").at("1"));
  BOOST_TEST(second.beside("id").equal(numbers_of(second.slice(0, second.size()))));
  for (std::int64_t i = 0; i < first.size(); ++i) {
    BOOST_TEST(first.where(i).forward == i / 4);
    BOOST_TEST(second.where(i).forward == i / 4);
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_in_the_queue_is_dropped_with_its_line) {
  const Folder folder;
  Net net;
  std::int64_t dropped = 0;
  {
    ForwardOutput dump(RecorderOptions().rows({0, 1}).beside({"id"}).spool(
        folder / "dump", spooling().queue_bytes(300000).when_full(tap::storage::WhenFull::drop)));
    dump.attach(*net, "*");
    for (std::int64_t i = 0; i < 300; ++i) {
      const std::int64_t first = i * 4096;
      const Context named("id", at::arange(first, first + 4096, at::kLong).reshape({64, 64}));
      net->forward(numbered(first, 64, 64), false);
    }
    dropped = dump.dropped();
    BOOST_TEST(dump.at("first").events() == 300);
  }
  BOOST_TEST(dropped > 0);
  for (const char* path : {"first", "twice", "last"}) {
    const Rows rows(load(folder / "dump").at(path));
    BOOST_TEST(rows.beside("id").equal(numbers_of(rows.slice(0, rows.size()))));
  }
}

BOOST_AUTO_TEST_CASE(other_recordings_are_not_continued_and_samples_are_rows) {
  const Folder folder;
  Net net;
  {
    ForwardOutput samples(RecorderOptions().spool(folder / "samples", spooling()));
    samples.attach(*net, "first");
    net->forward(numbered(0, 3, 4), false);
    net->forward(numbered(12, 2, 4), false);
  }
  const Rows rows(load(folder / "samples").at("first"));
  BOOST_TEST(rows.size() == 5);
  BOOST_TEST((rows.shape() == std::vector<std::int64_t>{4, 6}));
  BOOST_TEST(rows.where(4).forward == 1);
  BOOST_TEST(rows.where(4).place == 1);
  const std::string error = error_of([&] {
    ForwardOutput dump(RecorderOptions().rows({0}).spool(folder / "samples", SpoolOptions().append(true)));
    dump.attach(*net, "first");
  });
  BOOST_TEST(contains(error, "choose another directory"), error);
  {
    ForwardOutput dump(RecorderOptions().rows({0}).spool(folder / "rows", spooling()));
    dump.attach(*net, "first");
    net->forward(numbered(0, 3, 4), false);
  }
  {
    ForwardOutput behind(RecorderOptions().spool(folder / "rows", SpoolOptions().append(true)));
    const std::string refused = error_of([&] { behind.attach(*net, "first"); });
    BOOST_TEST(contains(refused, "has rows of it"), refused);
    behind.attach(*net, "last");  // of which there are none
  }
  BOOST_TEST(Rows(load(folder / "rows").at("first")).size() == 3);
  ForwardOutput one(RecorderOptions().rows({0}).spool(folder / "one", spooling()));
  BOOST_CHECK_THROW(
      ForwardOutput(RecorderOptions().rows({0}).spool(folder / "one", SpoolOptions().append(true))),
      c10::ValueError);
}

BOOST_AUTO_TEST_CASE(a_reader_says_what_is_not_there) {
  const Folder folder;
  Run run;
  {
    ForwardOutput dump(keeping(folder / "dump"));
    dump.attach(*run.net, "*");
    run.all_kinds();
  }
  const auto recording = load(folder / "dump");
  const Rows rows(recording.at("first"));
  BOOST_CHECK_THROW(rows[rows.size()], c10::IndexError);
  BOOST_CHECK_THROW(rows.slice(2, 1), c10::IndexError);
  BOOST_CHECK_THROW(rows.beside("labels"), c10::IndexError);
  BOOST_CHECK_THROW(rows.gather(at::zeros({2})), c10::ValueError);
  BOOST_CHECK_THROW(rows.gather(at::full({2}, rows.size(), at::kLong)), c10::IndexError);
  at::Tensor wrong = at::empty({2, 5});
  BOOST_CHECK_THROW(rows.gather(at::zeros({2}, at::kLong), wrong), c10::ValueError);
  BOOST_CHECK_THROW(Rows(recording.at("label")), c10::ValueError);
  BOOST_TEST(tap::rows::is_dump(recording));
  std::int64_t count = 0;
  for (const at::Tensor& row : rows) count += row.equal(rows[count]);
  BOOST_TEST(count == rows.size());
  torchtap_test::fs::remove(folder / "dump/1-0.pt");
  BOOST_CHECK_THROW(Rows(recording.at("first")), c10::ValueError);
}

BOOST_AUTO_TEST_SUITE_END()
