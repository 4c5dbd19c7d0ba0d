// Prints files are read as they were written, and damaged ones are named.
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <thread>

#include <torchtap/base/dtypes.hpp>

#include "net.hpp"

using namespace torchtap_test;
using compare::Run;

BOOST_AUTO_TEST_SUITE(compare_run)

BOOST_AUTO_TEST_CASE(has_what_was_written) {
  Net net;
  const auto x = images();
  const Run run = run_of(net.prints(x, 2));
  BOOST_TEST(run.header().at("language") == "c++");
  BOOST_TEST(!run.cut_off());
  BOOST_TEST(run.weights().size() == net.names.size());
  for (std::size_t i = 0; i < run.weights().size(); ++i) {
    const auto& record = run.records()[run.weights()[i]];
    BOOST_TEST(run.path(record) == net.names[i]);
    BOOST_TEST(compare::same_bits(*run.print(record), compare::fingerprint(net.weights.at(net.names[i]))));
  }
  BOOST_TEST_REQUIRE(run.sequences().size() == 1U);
  std::vector<std::string> paths;
  for (const auto call : run.sequences()[0].calls) paths.push_back(run.path(run.calls()[call]));
  const std::vector<std::string> begin = {"",          "layer1",      "layer1.conv", "layer1.drop",
                                          "layer1.bn", "layer1.relu", "layer2"};
  BOOST_TEST(paths.size() == 2U * 17);
  BOOST_TEST(std::vector<std::string>(paths.begin(), paths.begin() + 7) == begin,
             boost::test_tools::per_element());
  for (std::size_t i = 0; i < run.calls().size(); ++i) {
    const auto& call = run.calls()[i];
    const std::string& path = run.path(call);
    BOOST_TEST(call.leaf == (path == "fc" || contains(path, ".")));
    BOOST_TEST(call.ordinal == i / 17);
    const auto dot = path.rfind('.');
    if (path.empty()) BOOST_TEST(call.parent == compare::kNone);
    if (!path.empty()) {
      BOOST_TEST_REQUIRE(call.parent != compare::kNone);
      BOOST_TEST(run.path(run.calls()[call.parent]) == (dot == std::string::npos ? "" : path.substr(0, dot)));
    }
    BOOST_TEST(call.inputs.size() == 1U);
    BOOST_TEST(call.outputs.size() == 1U);
  }
  BOOST_TEST(
      compare::same_bits(*run.print(run.records()[run.calls()[17].inputs[0]]), compare::fingerprint(x + 1)));
}

BOOST_AUTO_TEST_CASE(finds_calls_of_slots_threads_and_modules_that_return_nothing) {
  using frames::Kind;
  Prints prints;
  const auto t = at::ones({3});
  const auto in = [&](const char* path, int sample, int slot) {
    prints.tensor(Kind::forward_input, path, "M", t, sample, slot);
  };
  const auto out = [&](const char* path, int sample, int slot) {
    prints.tensor(Kind::forward_output, path, "M", t, sample, slot);
  };
  in("", 0, 0), in("", 0, 1);
  in("hook", 0, 0);  // returns no tensor
  in("a", 0, 0), out("a", 0, 0), out("a", 0, 1);
  prints.thread = 1;
  in("a", 1, 0);
  prints.thread = 0;
  in("a", 2, 0), out("a", 2, 0);
  in("", 0, 2);  // a keyword argument, seen after the call
  out("", 0, 0);
  in("", 0, 0), out("", 0, 0);  // of another root
  prints.thread = 1;
  out("a", 1, 0);
  const Run run = run_of(prints.bytes);
  BOOST_TEST_REQUIRE(run.sequences().size() == 2U);
  std::vector<std::string> seen;
  for (const auto& call : run.calls()) {
    seen.push_back(c10::str(run.path(call), " ", call.sequence, call.ordinal, call.inputs.size(),
                            call.outputs.size(),
                            call.parent == compare::kNone ? "-" : run.path(run.calls()[call.parent]) + "."));
  }
  const std::vector<std::string> expected = {" 0031-",  "hook 0010.", "a 0012.",
                                             "a 0111.", " 0111-",     "a 1011-"};
  BOOST_TEST(seen == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(has_fingerprints_of_whole_tensors_and_reasons) {
  Prints prints;
  const auto t = at::rand({5, 700}), large = at::rand({1 << 19});
  prints.tensor(frames::Kind::forward_input, "a", "M", t, 0, 0, true);
  prints.tensor(frames::Kind::forward_input, "a", "M", {}, 0, 1);
  prints.tensor(frames::Kind::forward_output, "a", "M", large, 0, 0, true);
  const Run run = run_of(prints.bytes);
  BOOST_TEST(compare::same_bits(*run.print(run.records()[0]), compare::fingerprint(t)));
  BOOST_TEST(!run.print(run.records()[1]).has_value());
  BOOST_TEST(run.reason(run.records()[1]) == "it is undefined");
  BOOST_TEST(compare::same_bits(*run.print(run.records()[2]), compare::fingerprint(large)));
}

BOOST_AUTO_TEST_CASE(a_dtype_of_a_later_libtorch_has_no_fingerprint) {
  Prints prints;
  frames::Frame frame;
  frame.kind = frames::Kind::forward_input, frame.dtype = 44;  // float8_e8m0fnu
  frame.dims = 1, frame.sizes[0] = frame.data_bytes = 4, frame.data = "1234";
  prints.add(frame);
  const Run run = run_of(prints.bytes);
  BOOST_TEST(run.print(run.records().at(0)).has_value() ==
             torchtap::base::dtype_of_text("float8_e8m0fnu").has_value());
}

BOOST_AUTO_TEST_CASE(reads_pipes) {
  const TemporaryDirectory directory;
  const std::string pipe = directory / "pipe", bytes = Net().prints(images());
  BOOST_TEST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { write(pipe, bytes); });
  const Run run = Run::read(pipe);
  writer.join();
  BOOST_TEST(run.records().size() == run_of(bytes).records().size());
  BOOST_TEST(run.print(run.records().back()).has_value());
}

BOOST_AUTO_TEST_CASE(reads_a_file_that_was_cut_off_up_to_there) {
  Prints prints;
  prints.header("language\tpython\n");
  for (int i = 0; i < 3; ++i) prints.call("a", "M", at::rand({4}), [](const at::Tensor& t) { return t + 1; });
  std::size_t whole = 0;
  for (std::size_t size = 1; size <= prints.bytes.size(); ++size) {
    const Run run = run_of(prints.bytes.substr(0, size));
    while (whole < prints.ends.size() && prints.ends[whole] <= size) ++whole;
    BOOST_TEST_REQUIRE(run.records().size() == (whole == 0 ? 0 : whole - 1));
    BOOST_TEST_REQUIRE(run.cut_off() == (whole == 0 || prints.ends[whole - 1] != size));
  }
}

BOOST_AUTO_TEST_CASE(names_what_is_wrong) {
  Prints prints;
  prints.header("language\tpython\n");
  prints.call("a", "M", at::rand({4}), [](const at::Tensor& t) { return t + 1; });
  const std::size_t at = prints.ends[0], data = prints.ends[1] - 832;
  const auto with = [&](std::size_t where, char value) {
    std::string bytes = prints.bytes;
    bytes[where] = value;
    return bytes;
  };
  const auto reads = [&](const std::string& bytes) { return [bytes] { run_of(bytes); }; };
  BOOST_TEST(contains(error_of([] { Run::read("/no/such.prints"); }), "there is no such file"));
  BOOST_TEST(contains(error_of([] { Run::read("/"); }), "it is a directory"));
  BOOST_TEST(contains(error_of(reads("")), "it is empty; write one with"));
  BOOST_TEST(contains(error_of(reads("PK\3\4 a zip file that is long enough")), "it is not a prints file"));
  BOOST_TEST(contains(error_of(reads("abc")), "it is not a prints file"));
  BOOST_TEST(
      contains(error_of(reads(with(at, 'X'))), c10::str("at byte ", at, ": this is not a whole frame")));
  BOOST_TEST(contains(error_of(reads(with(at + 4, 2))),
                      "was written by a newer torchtap (format 2; this one reads up to 1)"));
  BOOST_TEST(
      contains(error_of(reads(with(data + 400, 1))), "the checksum of its data is another one than it says"));
  // Right checksums over what makes no sense.
  const auto forged = [&](const std::function<void(compare::Fingerprint&)>& change) {
    Prints wrong;
    compare::Fingerprint print = compare::fingerprint(at::rand({4}));
    change(print);
    frames::Frame frame;
    frame.kind = frames::Kind::forward_input, frame.dims = 1,
    frame.sizes[0] = frame.data_bytes = sizeof print;
    frame.data = &print, frame.result = "fingerprint";
    wrong.add(frame);
    return wrong.bytes;
  };
  BOOST_TEST(contains(error_of(reads(forged([](auto& p) { p.version = 2; }))),
                      "was written by a newer torchtap (format 2; this one reads up to 1)"));
  BOOST_TEST(
      contains(error_of(reads(forged([](auto& p) { p.dims = 9; }))), "its fingerprint has 9 dimensions"));
  BOOST_TEST(contains(error_of(reads(forged([](auto& p) { p.sizes[0] = -4; }))), "dimension 0 is -4"));
}

BOOST_AUTO_TEST_CASE(survives_any_bytes) {
  const std::string good = Net().prints(images());
  std::mt19937 random(5);
  int refused = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string bytes = good.substr(0, trial % 2 == 0 ? good.size() : random() % good.size() + 1);
    for (unsigned i = random() % 4 + 1; i > 0; --i) {
      // Mostly where headers are.
      const std::size_t frame = random() % (bytes.size() / 64 + 1) * 64;
      bytes[std::min(bytes.size() - 1, frame + random() % 64)] = static_cast<char>(random());
    }
    try {
      const Run run = run_of(bytes);
      for (const auto& record : run.records()) {
        if (!run.print(record)) run.reason(record);
      }
    } catch (const c10::ValueError&) {
      ++refused;
    }
  }
  BOOST_TEST(refused > 100);
  for (int trial = 0; trial < 200; ++trial) {
    std::string bytes(random() % 4000 + 1, '\0');
    for (auto& byte : bytes) byte = static_cast<char>(random());
    BOOST_CHECK_THROW(run_of(bytes), c10::ValueError);
  }
}

BOOST_AUTO_TEST_SUITE_END()
