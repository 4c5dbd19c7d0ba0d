// The bytes of frames: against the golden file, and damaged in every way.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "golden.hpp"
#include "tests/support.hpp"

using namespace torchtap::views::stream;
using torchtap_test::says;

namespace {

std::string bytes_of(const Frame& frame) {
  std::string bytes(frame_bytes(frame), '\0');
  write_header(frame, bytes.data());
  if (frame.data_bytes != 0) std::memcpy(bytes.data() + header_bytes(frame), frame.data, frame.data_bytes);
  return bytes;
}

std::string golden_file() {
  std::ifstream file(TORCHTAP_TEST_FORMATS "/1/frames.bin", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void check_equal(const Frame& a, const Frame& b) {
  BOOST_TEST(a.sequence == b.sequence);
  BOOST_TEST(a.time_ns == b.time_ns);
  BOOST_TEST(a.sample == b.sample);
  BOOST_TEST(a.call == b.call);
  BOOST_TEST(a.readers == b.readers);
  BOOST_TEST(a.missed == b.missed);
  BOOST_TEST(a.thread == b.thread);
  BOOST_TEST(a.rank == b.rank);
  BOOST_TEST(a.checksum == b.checksum);
  BOOST_TEST(a.slot == b.slot);
  BOOST_TEST((a.kind == b.kind));
  BOOST_TEST(a.dtype == b.dtype);
  BOOST_TEST(a.dims == b.dims);
  BOOST_TEST(a.device_type == b.device_type);
  BOOST_TEST(a.device_index == b.device_index);
  BOOST_TEST(a.has_checksum == b.has_checksum);
  BOOST_TEST(a.without_data == b.without_data);
  BOOST_TEST((a.sizes == b.sizes));
  BOOST_TEST(a.path == b.path);
  BOOST_TEST(a.type == b.type);
  BOOST_TEST(a.text == b.text);
  BOOST_TEST(a.result == b.result);
  BOOST_TEST(a.data_bytes == b.data_bytes);
  if (a.data_bytes == 0 || a.data_bytes != b.data_bytes) return;
  BOOST_TEST(std::memcmp(a.data, b.data, a.data_bytes) == 0);
}

}  // namespace

// A change of these bytes is a change of the format, which then needs another version.
BOOST_AUTO_TEST_CASE(frames_are_written_as_in_the_golden_file) {
  std::string written;
  for (const Frame& frame : torchtap_test::golden_frames().frames) {
    Frame with_data = frame;
    written += bytes_of(with_data);
  }
  if (std::getenv("TORCHTAP_WRITE_GOLDEN") != nullptr) {
    std::ofstream(TORCHTAP_TEST_FORMATS "/1/frames.bin", std::ios::binary) << written;
  }
  BOOST_TEST((written == golden_file()));
}

BOOST_AUTO_TEST_CASE(the_golden_file_is_read) {
  const std::string file = golden_file();
  const auto golden = torchtap_test::golden_frames();
  std::size_t at = 0;
  for (const Frame& expected : golden.frames) {
    BOOST_REQUIRE(at < file.size());
    const Frame frame = read_frame(file.data() + at, file.size() - at);
    check_equal(frame, expected);
    at += frame_length(file.data() + at, 16);
  }
  BOOST_TEST(at == file.size());
}

BOOST_AUTO_TEST_CASE(another_version_is_refused_with_a_sentence) {
  std::string file = golden_file();
  file[4] = 2;
  BOOST_CHECK_EXCEPTION(read_frame(file.data(), file.size()), c10::ValueError,
                        says({"newer torchtap (format 2; this one reads up to 1)", "update torchtap"}));
  BOOST_CHECK_EXCEPTION(frame_length(file.data(), 16), c10::ValueError, says({"format 2"}));
}

BOOST_AUTO_TEST_CASE(what_a_later_minor_change_adds_is_skipped) {
  Frame frame;
  frame.path = "layer1";
  frame.dtype = 6;
  frame.dims = 1;
  frame.sizes[0] = 2;
  const float data[2] = {1, 2};
  frame.data = data;
  frame.data_bytes = sizeof data;
  std::string bytes = bytes_of(frame);
  bytes.insert(header_bytes(frame), 64, 'x');  // a longer header
  const std::uint16_t header = static_cast<std::uint16_t>(header_bytes(frame) + 64);
  const std::uint64_t length = bytes.size();
  std::memcpy(&bytes[6], &header, sizeof header);
  std::memcpy(&bytes[8], &length, sizeof length);
  bytes[97] = static_cast<char>(0xF0);  // flags that are not known
  const Frame read = read_frame(bytes.data(), bytes.size());
  BOOST_TEST(read.path == "layer1");
  BOOST_TEST(std::memcmp(read.data, data, sizeof data) == 0);
}

BOOST_AUTO_TEST_CASE(texts_that_are_too_long_are_cut_between_characters) {
  Frame frame;
  std::string text(kMostText - 1, 'a');
  text += "é";
  frame.text = text;
  const std::string bytes = bytes_of(frame);
  frame.without_data = true;
  BOOST_TEST(read_frame(bytes_of(frame).data(), frame_bytes(frame)).text.size() == kMostText - 1);
}

BOOST_AUTO_TEST_CASE(contradictions_are_errors) {
  const auto golden = torchtap_test::golden_frames();
  const std::string good = bytes_of(golden.frames[8]);
  const auto with = [&](std::size_t at, std::int64_t value, std::size_t size) {
    std::string bytes = good;
    std::memcpy(&bytes[at], &value, size);
    return bytes;
  };
  const auto refused = [](const std::string& bytes, const char* part) {
    BOOST_CHECK_EXCEPTION(read_frame(bytes.data(), bytes.size()), c10::ValueError,
                          says({"views::frames", part}));
  };
  refused(good.substr(0, 10), "only 10 bytes");
  refused(good.substr(0, good.size() - 1), "bytes are there");
  refused(with(0, 0, 4), "TTF1");
  refused(with(8, 64, 8), "64 bytes long");
  refused(with(48, 1, 8), "its data are 1 bytes");
  refused(with(86, 4097, 2), "texts take");
  refused(with(96, 9, 1), "9 dimensions");
  refused(with(120, -1, 8), "dimension 0 is -1");
  refused(with(120, std::int64_t{1} << 62, 8), "dimension");
  refused(with(120, 7, 8), "do not take");
}

// No byte outside is read (ASan), and nothing but a c10::ValueError is thrown.
BOOST_AUTO_TEST_CASE(damaged_frames_are_errors_or_frames) {
  std::mt19937 random(1);
  const auto golden = torchtap_test::golden_frames();
  std::size_t good = 0;
  std::size_t bad = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = bytes_of(golden.frames[random() % golden.frames.size()]);
    for (unsigned i = 0; i < 1 + random() % 4; ++i) {
      const std::size_t at =
          random() % 4 == 0 ? random() % bytes.size() : random() % std::min<std::size_t>(bytes.size(), 192);
      bytes[at] = static_cast<char>(random() % 3 == 0 ? 0xFF : random());
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    const std::vector<char> exact(bytes.begin(), bytes.end());
    try {
      const Frame frame = read_frame(exact.data(), exact.size());
      const auto inside = [&](const void* at, std::size_t size) {
        const auto* const begin = static_cast<const char*>(at);
        return size == 0 || (begin >= exact.data() && begin + size <= exact.data() + exact.size());
      };
      BOOST_REQUIRE(inside(frame.data, frame.data_bytes));
      BOOST_REQUIRE(inside(frame.path.data(), frame.path.size()));
      BOOST_REQUIRE(inside(frame.result.data(), frame.result.size()));
      ++good;
    } catch (const c10::ValueError&) {
      ++bad;
    }
  }
  BOOST_TEST(good > 1000U);
  BOOST_TEST(bad > 1000U);
}

BOOST_AUTO_TEST_CASE(kinds_have_names) {
  for (std::size_t i = 0; i < kKinds; ++i) {
    BOOST_TEST((kind_of(name_of(static_cast<Kind>(i))) == static_cast<Kind>(i)));
  }
  BOOST_TEST(name_of(static_cast<Kind>(200)) == "unknown");
  BOOST_CHECK_EXCEPTION(kind_of("Forward"), c10::ValueError, says({"Forward", "ForwardOutput"}));
}
