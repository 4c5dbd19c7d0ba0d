// Frames that come through a pipe: what arrives, what is chosen, and what writers that lie or die can do.
#include <ATen/Functions.h>
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include <torchtap/base/crc32.hpp>
#include <torchtap/views/stream/reader.hpp>

#include "transport.hpp"

using namespace torchtap_test;
using stream::Reader;

namespace {

std::string whole_bytes(const Frame& frame) {
  std::string bytes(stream::frame_bytes(frame), '\0');
  stream::write_header(frame, bytes.data());
  if (frame.data_bytes != 0)
    std::memcpy(bytes.data() + stream::header_bytes(frame), frame.data, frame.data_bytes);
  return bytes;
}

std::string said(const std::string& text) {
  Frame frame;
  frame.kind = Kind::header;
  frame.without_data = true;
  frame.text = text;
  return whole_bytes(frame);
}
const std::string kBegins = said("process\t7\n");
const std::string kEnds = said("missed\t0\nend\t\n");

/// A frame of three numbers.
std::string sample(const std::string& path, std::uint64_t number, Kind kind = Kind::forward_output,
                   std::uint64_t time_ns = 0, std::uint64_t missed = 0) {
  const double numbers[3] = {static_cast<double>(number), 1, -2};
  Frame frame;
  frame.path = path;
  frame.kind = kind;
  frame.sample = number;
  frame.time_ns = time_ns;
  frame.missed = missed;
  frame.dtype = 7;
  frame.dims = 1;
  frame.sizes[0] = 3;
  frame.data = numbers;
  frame.data_bytes = sizeof numbers;
  frame.has_checksum = true;
  frame.checksum = torchtap::base::crc32(0, numbers, sizeof numbers);
  return whole_bytes(frame);
}

/// The end of a pipe into which a thread writes `bytes`, in pieces of `piece` bytes, and closes it.
class Pipe {
 public:
  explicit Pipe(const std::string& bytes, std::size_t piece = std::string::npos) {
    BOOST_REQUIRE(::pipe2(ends_, O_CLOEXEC) == 0);
    thread_ = std::thread([this, bytes, piece] {
      for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t put = ::write(ends_[1], bytes.data() + at, std::min(piece, bytes.size() - at));
        if (put <= 0) break;
        at += static_cast<std::size_t>(put);
      }
      ::close(ends_[1]);
    });
  }
  ~Pipe() {
    for (char bytes[4096]; ::read(ends_[0], bytes, sizeof bytes) > 0;) continue;
    thread_.join();
    ::close(ends_[0]);
  }
  int end() const { return ends_[0]; }

 private:
  int ends_[2] = {};
  std::thread thread_;
};

std::vector<std::string> read_all(Reader& reader) {
  std::vector<std::string> seen;
  while (auto frame = reader.next(20s)) {
    BOOST_TEST(stream::to_tensor(*frame)[0].item<double>() == static_cast<double>(frame->sample));
    seen.push_back(std::string(frame->path) + " " + std::to_string(frame->sample));
  }
  BOOST_TEST(reader.ended());
  return seen;
}

using Texts = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_CASE(frames_arrive_through_a_pipe_as_they_were) {
  const std::string all =
      kBegins + sample("a", 0) + sample("b", 0) + sample("a", 1, Kind::forward_output, 0, 5) + kEnds;
  for (const std::size_t piece : {std::string::npos, std::size_t{7}}) {
    const Pipe pipe(all, piece);
    Reader reader = Reader::from(pipe.end());
    BOOST_TEST(read_all(reader) == (Texts{"a 0", "b 0", "a 1"}), boost::test_tools::per_element());
    BOOST_TEST(reader.broken() == "");
    BOOST_TEST(reader.received() == 3);
    BOOST_TEST(reader.missed() == 5);
    BOOST_TEST(reader.publisher() == 7);
  }
}

BOOST_AUTO_TEST_CASE(a_subscription_chooses_among_the_frames_that_come) {
  std::string all = kBegins;
  for (std::uint64_t i = 0; i < 8; ++i) {
    all += sample("layer1.0", i, Kind::forward_output, i * 100000000);
    all += sample("fc", i, Kind::backward_input, i * 100000000);
  }
  const auto chosen = [&](const Subscription& subscription) {
    const Pipe pipe(all + kEnds);
    Reader reader = Reader::from(pipe.end(), subscription);
    return read_all(reader);
  };
  BOOST_TEST(chosen({}).size() == 16U);
  BOOST_TEST(chosen(Subscription().names({"layer*"})).size() == 8U);
  BOOST_TEST(chosen(Subscription().kinds({Kind::backward_input})).size() == 8U);
  BOOST_TEST(chosen(Subscription().names({"fc"}).every(4)) == (Texts{"fc 0", "fc 4"}),
             boost::test_tools::per_element());
  BOOST_TEST(chosen(Subscription().names({"fc"}).hz(5)) == (Texts{"fc 0", "fc 2", "fc 4", "fc 6"}),
             boost::test_tools::per_element());
  BOOST_CHECK_EXCEPTION(chosen(Subscription().every(0)), c10::ValueError, says({"every(0)"}));
}

BOOST_AUTO_TEST_CASE(frames_that_break_off_are_no_stream_that_ended) {
  const auto why = [](const std::string& bytes) {
    const Pipe pipe(bytes);
    Reader reader = Reader::from(pipe.end());
    read_all(reader);
    return reader.broken();
  };
  const std::string whole = kBegins + sample("a", 0);
  BOOST_TEST(why(whole + kEnds) == "");
  BOOST_TEST(why(whole + said("end\tprocess 7 was killed\n")) == "process 7 was killed");
  for (const std::string& cut :
       {whole, kBegins, whole + kEnds.substr(0, 20), whole.substr(0, whole.size() - 1)})
    BOOST_TEST(why(cut).find("the frames broke off") == 0U, why(cut));
}

BOOST_AUTO_TEST_CASE(a_reader_waits_no_longer_than_it_was_told) {
  int ends[2] = {};
  BOOST_REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const std::string first = kBegins + sample("a", 0).substr(0, 100);
  BOOST_REQUIRE(::write(ends[1], first.data(), first.size()) == static_cast<ssize_t>(first.size()));
  Reader reader = Reader::from(ends[0]);
  for (const auto timeout : {0ns, 5000000ns}) {
    BOOST_TEST(!reader.next(timeout).has_value());
    BOOST_TEST(!reader.ended());
  }
  const std::string rest = sample("a", 0).substr(100);
  BOOST_REQUIRE(::write(ends[1], rest.data(), rest.size()) == static_cast<ssize_t>(rest.size()));
  BOOST_TEST(reader.next(20s)->path == "a");
  // Both processes would get parts.
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      reader.next(0ns);
      ::_exit(1);
    } catch (const c10::ValueError&) {
      ::_exit(0);
    }
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(status == 0);
  for (const int end : ends) ::close(end);
}

BOOST_AUTO_TEST_CASE(what_is_no_frame_is_an_error) {
  const auto read = [](const std::string& bytes) {
    const Pipe pipe(bytes);
    Reader reader = Reader::from(pipe.end());
    return read_all(reader).size();
  };
  BOOST_CHECK_EXCEPTION(read(""), c10::ValueError, says({"no frames came", "torchtap tail NAME --frames"}));
  BOOST_CHECK_THROW(read("bash: torchtap: command not found"), c10::ValueError);
  BOOST_CHECK_THROW(read("short"), c10::ValueError);
  std::string damaged = kBegins + sample("a", 0);
  damaged[damaged.size() - 64] ^= 1;
  BOOST_CHECK_EXCEPTION(read(damaged), c10::ValueError, says({"the data of \"a\" arrived damaged"}));
  BOOST_CHECK_THROW(read(kBegins + sample("a", 0) + std::string(64, 'x')), c10::ValueError);
  // A length that never comes takes no memory.
  std::string large = kBegins + sample("a", 0);
  const std::uint64_t length = std::uint64_t{1} << 39;
  std::memcpy(large.data() + kBegins.size() + 8, &length, sizeof length);
  BOOST_TEST(read(large) == 0U);
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = kBegins + sample("layer1.0", 0) + sample("layer1.0", 1);
    for (int i = 0; i < 1 + round % 4; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      const Pipe pipe(bytes);
      Reader reader = Reader::from(pipe.end());
      while (reader.next(20s).has_value()) continue;
      BOOST_TEST(reader.ended());
    } catch (const c10::Error&) {
    }
  }
}
