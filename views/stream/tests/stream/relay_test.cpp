// Relays: what arrives over TCP, who may read, and what peers that lie, die or stop can do.
#include <ATen/Functions.h>
#include <boost/test/unit_test.hpp>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include <torchtap/views/stream/detail/handshake.hpp>
#include <torchtap/views/stream/detail/remote.hpp>
#include <torchtap/views/stream/detail/tcp.hpp>
#include <torchtap/views/stream/publisher.hpp>
#include <torchtap/views/stream/reader.hpp>
#include <torchtap/views/stream/relay.hpp>

#include "transport.hpp"

using namespace torchtap_test;
namespace tcp = torchtap::views::stream::detail;
using stream::Publisher;
using stream::PublisherOptions;
using stream::Reader;
using stream::ReaderOptions;
using stream::Relay;
using stream::RelayOptions;

namespace {

const std::string kToken = "a token of 24 characters";

/// A publisher, and a relay of it.
struct Relayed {
  Rendezvous here;
  std::unique_ptr<Publisher> publisher;
  std::unique_ptr<Relay> relay;

  explicit Relayed(RelayOptions options = {}, std::int64_t bytes = 1 << 22) {
    publisher = std::make_unique<Publisher>(
        "test", PublisherOptions().directory(here.path()).bytes(bytes).wait_at_most(20s));
    relay = std::make_unique<Relay>("test", options.directory(here.path()));
  }
  std::string name() const { return "tcp:" + relay->address(); }
  Reader reader(const Subscription& subscription = {}, const ReaderOptions& options = {}) const {
    return Reader(name(), subscription, options);
  }
  tcp::Descriptor connect() const {
    return tcp::connect_tcp("test", tcp::parse_address("test", relay->address()), tcp::deadline_after(10s));
  }
};

/// Reads until the other end closes.
std::string all_of(const tcp::Descriptor& socket) {
  tcp::Incoming incoming;
  std::string text;
  while (incoming.fill(socket, 1, tcp::deadline_after(20s)) == tcp::Incoming::State::whole) {
    text += incoming.text(0, 1);
    incoming.clear();
  }
  return text;
}

/// A relay that says `answer` after a reader has introduced itself, and closes.
class False {
 public:
  explicit False(std::string hello, std::string answer = {})
      : listener_(tcp::listen_at("test", {"127.0.0.1", "0"}, false)),
        thread_([this, hello = std::move(hello), answer = std::move(answer)] {
          tcp::Descriptor socket;
          while (!socket) socket = tcp::accept_tcp(listener_);
          tcp::send_all(socket, hello.data(), hello.size(), 10s);
          tcp::Incoming incoming;
          if (answer.empty() ||
              incoming.fill(socket, tcp::kProof + 8, tcp::deadline_after(10s)) != tcp::Incoming::State::whole)
            return;
          tcp::send_message(socket, tcp::write_status("pid\t7\n"), 10s);
          tcp::send_all(socket, answer.data(), answer.size(), 10s);
          ::shutdown(socket.get(), SHUT_WR);
          while (incoming.fill(socket, 1, tcp::deadline_after(10s)) == tcp::Incoming::State::whole)
            incoming.clear();
        }) {}
  ~False() { thread_.join(); }
  std::string name() const { return "tcp:" + tcp::name_of_listener(listener_); }

 private:
  tcp::Descriptor listener_;
  std::thread thread_;
};

std::string hello_of(bool wants_token) {
  return tcp::write_hello(std::string(tcp::kNonce, 'n'), wants_token);
}

std::string frame_bytes_of(const Frame& frame) {
  std::string bytes(stream::frame_bytes(frame), '\0');
  stream::write_header(frame, bytes.data());
  if (frame.data_bytes != 0)
    std::memcpy(bytes.data() + stream::header_bytes(frame), frame.data, frame.data_bytes);
  return bytes;
}

std::string hex(const tcp::Digest& digest) {
  std::string text;
  for (const unsigned byte : digest) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(sha256_as_its_standard_computes_it) {  // FIPS 180-4, RFC 4231
  BOOST_TEST(hex(tcp::sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  BOOST_TEST(hex(tcp::sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  BOOST_TEST(hex(tcp::sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
             "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  BOOST_TEST(hex(tcp::sha256(std::string(1000000, 'a'))) ==
             "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  BOOST_TEST(hex(tcp::hmac_sha256("Jefe", "what do ya want for nothing?")) ==
             "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  BOOST_TEST(hex(tcp::hmac_sha256(std::string(131, '\xaa'),
                                  "Test Using Larger Than Block-Size Key - Hash Key First")) ==
             "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

BOOST_AUTO_TEST_CASE(tensors_arrive_over_tcp_as_they_were) {
  Relayed relayed;
  stream::Source maps = relayed.publisher->source("layer1.0", "Conv2d", Kind::forward_output);
  stream::Source loss = relayed.publisher->source("loss");
  Reader all = relayed.reader();
  Reader some = relayed.reader(Subscription().names({"layer*"}).every(2));
  std::vector<at::Tensor> sent;
  for (int i = 0; i < 6; ++i) {
    relayed.publisher->annotate("epoch " + std::to_string(i));
    sent.push_back(at::randn({3, 50, 1000}).to(i % 2 == 0 ? at::kFloat : at::kBFloat16));
    BOOST_TEST(maps.publish(sent.back()));
    BOOST_TEST(loss.publish(at::full({}, i)));
  }
  BOOST_TEST(maps.publish(at::empty({0, 3})));
  for (int i = 0; i < 6; ++i) {
    const auto frame = all.next(20s);
    BOOST_TEST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->path == "layer1.0");
    BOOST_TEST(frame->type == "Conv2d");
    BOOST_TEST(frame->text == "epoch " + std::to_string(i));
    BOOST_TEST(frame->sample == static_cast<std::uint64_t>(i));
    BOOST_TEST(at::equal(stream::to_tensor(*frame), sent[static_cast<std::size_t>(i)]));
    BOOST_TEST_REQUIRE(all.next(20s)->path == "loss");
  }
  BOOST_TEST(stream::to_tensor(*all.next(20s)).numel() == 0);
  for (std::uint64_t sample : {0, 2, 4, 6}) BOOST_TEST(some.next(20s)->sample == sample);
  BOOST_TEST(all.publisher() == ::getpid());
  BOOST_TEST(relayed.relay->readers() <= 2);
  relayed.publisher.reset();
  BOOST_TEST(!all.next(20s).has_value());
  BOOST_TEST(all.ended());
  BOOST_TEST(all.broken() == "");
  BOOST_TEST(all.received() == 13);
  BOOST_TEST(all.missed() == 0);
  for (int i = 0; i < 1000 && !relayed.relay->ended(); ++i) std::this_thread::sleep_for(10ms);
  BOOST_TEST(relayed.relay->ended());
}

BOOST_AUTO_TEST_CASE(a_reader_elsewhere_changes_what_it_wants) {
  Relayed relayed;
  stream::Source a = relayed.publisher->source("a");
  stream::Source b = relayed.publisher->source("b");
  Reader reader = relayed.reader(Subscription().names({"a"}));
  BOOST_TEST(!b.wanted());
  reader.subscribe(Subscription().names({"b"}));
  for (int i = 0; i < 2000 && !b.wanted(); ++i) std::this_thread::sleep_for(5ms);
  BOOST_TEST_REQUIRE(b.wanted());
  BOOST_TEST(!a.wanted());
  b.publish(at::ones({}));
  BOOST_TEST(reader.next(20s)->path == "b");
  // What the publisher does not take is an error of that reader alone.
  Reader other = relayed.reader(Subscription().names({"b"}));
  const auto socket = relayed.connect();
  std::string wrong = tcp::write_proof({});
  tcp::send_all(socket, wrong.data(), wrong.size(), 10s);
  tcp::send_message(socket, tcp::write_status(), 10s);
  BOOST_TEST(all_of(socket).find("says what it wants") != std::string::npos);
  b.publish(at::ones({}));
  BOOST_TEST(other.next(20s)->path == "b");
}

BOOST_AUTO_TEST_CASE(a_slow_reader_elsewhere_misses_frames_and_knows_how_many) {
  Relayed relayed;
  stream::Source source = relayed.publisher->source("a");
  Reader slow = relayed.reader();
  Reader fast = relayed.reader();
  constexpr int kFrames = 3000;
  std::atomic<std::int64_t> fast_sum{0};
  std::thread reading([&] {
    while (auto frame = fast.next(20s)) ++fast_sum;
  });
  const at::Tensor tensor = at::zeros({25000});
  for (int i = 0; i < kFrames; ++i) {
    tensor.fill_(i);
    source.publish(tensor);
  }
  BOOST_TEST(relayed.publisher->counters().waited_ns < 1000000000);  // it waits for nobody
  relayed.publisher.reset();
  std::int64_t frames = 0;
  std::uint64_t last = 0;
  while (auto frame = slow.next(20s)) {
    const at::Tensor got = stream::to_tensor(*frame);
    BOOST_TEST_REQUIRE(at::equal(got, at::full({25000}, static_cast<double>(frame->sample))));
    BOOST_TEST_REQUIRE((frames == 0 || frame->sample > last));
    last = frame->sample;
    ++frames;
  }
  reading.join();
  BOOST_TEST(slow.ended());
  BOOST_TEST(slow.received() == frames);
  BOOST_TEST(slow.received() + slow.missed() == kFrames);
  BOOST_TEST(slow.missed() > 0);
  BOOST_TEST(fast.received() + fast.missed() == kFrames);
  BOOST_TEST(fast.received() == fast_sum.load());
}

BOOST_AUTO_TEST_CASE(tokens) {
  BOOST_CHECK_EXCEPTION(Relayed(RelayOptions().listen("0.0.0.0:0")), c10::ValueError,
                        says({"other machines reach \"0.0.0.0\""}));
  BOOST_CHECK_EXCEPTION(Relayed(RelayOptions().token("short")), c10::ValueError, says({"at least 16"}));
  BOOST_CHECK_EXCEPTION(Relayed(RelayOptions().listen("here")), c10::ValueError,
                        says({"expected HOST:PORT"}));
  Relayed relayed(RelayOptions().listen("0.0.0.0:0").token(kToken));
  const std::string address = relayed.relay->address();
  const std::string name = "tcp:127.0.0.1" + address.substr(address.rfind(':'));
  BOOST_CHECK_EXCEPTION(Reader{name}, c10::ValueError, says({"wants a token"}));
  BOOST_CHECK_EXCEPTION(Reader(name, {}, ReaderOptions().token("another token of 26 chars")), c10::ValueError,
                        says({"the token is wrong"}));
  Reader reader(name, {}, ReaderOptions().token(kToken));
  stream::Source source = relayed.publisher->source("a");
  source.publish(at::ones({2}));
  BOOST_TEST(reader.next(20s)->path == "a");
  // The proof of one connection is none for another: the challenge differs.
  const auto first = relayed.connect();
  const auto second = relayed.connect();
  tcp::Incoming one, two;
  one.fill(first, tcp::kHello, tcp::deadline_after(10s));
  two.fill(second, tcp::kHello, tcp::deadline_after(10s));
  BOOST_TEST(one.text(8, tcp::kNonce) != two.text(8, tcp::kNonce));
  const std::string proof = tcp::write_proof(tcp::hmac_sha256(kToken, one.text(8, tcp::kNonce)));
  tcp::send_all(second, proof.data(), proof.size(), 10s);
  BOOST_TEST(all_of(second).find("the token is wrong") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(nobody_to_relay_or_to_read) {
  const Rendezvous here;
  BOOST_CHECK_EXCEPTION(Relay("test", RelayOptions().directory(here.path())), c10::ValueError,
                        says({"no program publishes \"test\""}));
  std::string free;
  { free = tcp::name_of_listener(tcp::listen_at("test", {"127.0.0.1", "0"}, false)); }
  BOOST_CHECK_EXCEPTION(Reader("tcp:" + free), c10::ValueError, says({"does torchtap relay run there?"}));
  BOOST_CHECK_EXCEPTION(Reader("tcp:7777"), c10::ValueError, says({"expected HOST:PORT"}));
  BOOST_CHECK_EXCEPTION(Reader("tcp:127.0.0.1:99999"), c10::ValueError, says({"expected HOST:PORT"}));
}

BOOST_AUTO_TEST_CASE(readers_that_speak_nonsense_are_refused) {
  Relayed relayed;
  stream::Source source = relayed.publisher->source("a");
  Reader reader = relayed.reader();
  const std::string proof = tcp::write_proof({});
  std::string huge("TTM1\xff\xff\xff\x7f", 8);
  std::vector<std::string> sayings{"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n------------------------",
                                   proof + huge, proof + "nonsense, and more of it",
                                   proof.substr(0, 4) + "\x09" + proof.substr(5)};
  std::mt19937 random(7);
  for (int i = 0; i < 30; ++i) {
    std::string noise = i % 2 == 0 ? "" : proof;
    for (int k = 0; k < 200; ++k) noise += static_cast<char>(random());
    sayings.push_back(noise);
  }
  std::vector<tcp::Descriptor> mute;  // say nothing, and stay
  for (int i = 0; i < 3; ++i) mute.push_back(relayed.connect());
  for (const auto& text : sayings) {
    const auto socket = relayed.connect();
    tcp::send_all(socket, text.data(), text.size(), 10s);
    BOOST_TEST(all_of(socket).find("TTE1") != std::string::npos);
  }
  for (int i = 0; i < 20; ++i) relayed.connect();  // and go at once
  source.publish(at::ones({2}));
  BOOST_TEST(reader.next(20s)->path == "a");
  for (int i = 0; i < 2000 && relayed.relay->refused() < 54; ++i) std::this_thread::sleep_for(10ms);
  BOOST_TEST(relayed.relay->refused() >= 54);
}

BOOST_AUTO_TEST_CASE(a_relay_has_a_limit_of_readers_and_gives_up_those_that_stop) {
  Relayed relayed(RelayOptions().readers(2).patience(200ms));
  stream::Source source = relayed.publisher->source("a");
  auto first = std::make_unique<Reader>(relayed.reader());
  Reader second = relayed.reader();
  BOOST_CHECK_EXCEPTION(relayed.reader(), c10::ValueError, says({"as many readers as it may have"}));
  first.reset();
  // The second takes nothing, until the system's buffers are full and the patience is over.
  const at::Tensor tensor = at::zeros({200000});
  for (int i = 0; i < 2000 && (relayed.relay->readers() > 0 || i < 20); ++i) {
    source.publish(tensor);
    std::this_thread::sleep_for(5ms);
  }
  BOOST_TEST(relayed.relay->readers() == 0);
  Reader third = relayed.reader();
  source.publish(at::ones({1}));
  BOOST_TEST(third.next(20s).has_value());
}

BOOST_AUTO_TEST_CASE(of_many_readers_at_once_as_many_are_let_in_as_may_be) {
  Relayed relayed(RelayOptions().readers(2));
  std::atomic<int> refused{0};
  std::atomic<int> other{0};
  std::vector<std::unique_ptr<Reader>> in(8);
  std::vector<std::thread> threads;
  for (auto& place : in) {
    threads.emplace_back([&] {
      try {
        place = std::make_unique<Reader>(relayed.reader());
      } catch (const c10::ValueError& error) {
        ++(says({"as many readers as it may have"})(error) ? refused : other);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(refused == 6);
  BOOST_TEST(other == 0);
  BOOST_TEST(relayed.relay->readers() == 2);
}

BOOST_AUTO_TEST_CASE(strangers_who_say_nothing_keep_nobody_out) {
  Relayed relayed(RelayOptions().readers(1).token(kToken));
  std::vector<tcp::Descriptor> mute;
  for (int i = 0; i < 80; ++i) mute.push_back(relayed.connect());
  stream::Source source = relayed.publisher->source("a");
  Reader reader = relayed.reader({}, ReaderOptions().token(kToken));
  source.publish(at::ones({2}));
  BOOST_TEST(reader.next(20s)->path == "a");
  BOOST_TEST(all_of(mute.front()).find("TTE1") == std::string::npos);  // it was closed
}

BOOST_AUTO_TEST_CASE(a_stream_that_breaks_off_is_no_stream_that_ended) {
  const auto why = [](Reader& reader) {
    while (reader.next(20s).has_value()) continue;
    BOOST_TEST(reader.ended());
    return reader.broken();
  };
  {
    Relayed relayed;  // the relay is stopped
    Reader reader = relayed.reader();
    BOOST_TEST(reader.broken() == "");
    relayed.relay.reset();
    BOOST_TEST(why(reader) == "the relay was stopped");
  }
  {
    const Rendezvous here;  // the program is killed
    const pid_t program = ::fork();
    if (program == 0) {
      Publisher publisher("test", PublisherOptions().directory(here.path()));
      ::pause();
    }
    Reader local("test", {}, ReaderOptions().directory(here.path()).wait(20s));
    Relay relay("test", RelayOptions().directory(here.path()));
    Reader far("tcp:" + relay.address());
    ::kill(program, SIGKILL);
    for (Reader* reader : {&local, &far}) {
      const std::string said = why(*reader);
      BOOST_TEST(said.find("process " + std::to_string(program)) != std::string::npos, said);
      BOOST_TEST(said.find("was killed or crashed") != std::string::npos, said);
    }
    ::waitpid(program, nullptr, 0);
  }
  {
    const double number = 3;  // the relay is killed: the connection ends after a whole frame
    Frame frame;
    frame.dtype = 7;
    frame.data = &number;
    frame.data_bytes = sizeof number;
    const False relay(hello_of(false), frame_bytes_of(frame));
    Reader reader(relay.name());
    BOOST_TEST(why(reader).find("the connection to the relay at \"tcp:127.0.0.1:") == 0U);
    BOOST_TEST(reader.received() == 1);
  }
}

// A cable that is cut ends no connection.
BOOST_AUTO_TEST_CASE(a_relay_that_is_silent_is_lost) {
  Relayed relayed(RelayOptions().heartbeat(20ms));
  Reader heard(relayed.name(), {}, ReaderOptions().silence(2s));
  std::atomic<bool> stop{false};
  const auto listener = tcp::listen_at("test", {"127.0.0.1", "0"}, false);
  std::thread silent([&] {
    tcp::Descriptor socket;
    while (!socket) socket = tcp::accept_tcp(listener);
    const std::string hello = hello_of(false);
    tcp::send_all(socket, hello.data(), hello.size(), 10s);
    tcp::send_message(socket, tcp::write_status("pid\t7\n"), 10s);
    while (!stop) std::this_thread::sleep_for(1ms);
  });
  Reader reader("tcp:" + tcp::name_of_listener(listener), {}, ReaderOptions().silence(300ms));
  BOOST_TEST(!reader.next().has_value());
  BOOST_TEST(reader.ended());
  BOOST_TEST(reader.broken().find("nothing came from the relay") == 0U, reader.broken());
  stop = true;
  silent.join();
  BOOST_TEST(!heard.next(2500ms).has_value());  // nothing was published, and the relay lives
  BOOST_TEST(!heard.ended());
  stream::Source source = relayed.publisher->source("a");
  source.publish(at::ones({2}));
  BOOST_TEST(heard.next(20s)->path == "a");
}

BOOST_AUTO_TEST_CASE(relays_that_lie_are_errors_of_the_reader) {
  const auto joined = [](const std::string& answer) {
    const False relay(hello_of(false), answer);
    Reader reader(relay.name());
    while (reader.next(20s).has_value()) continue;
    return reader.ended();
  };
  for (const char* hello :
       {"SSH-2.0-OpenSSH_9.2p1 Debian", "TTH1\x02\x00\x00\x00 another version .......", "short", ""}) {
    const False relay(hello);
    BOOST_CHECK_THROW(Reader{relay.name()}, c10::ValueError);
  }
  const double number = 3;
  Frame frame;
  frame.path = "a";
  frame.dtype = 7;
  frame.data = &number;
  frame.data_bytes = sizeof number;
  frame.has_checksum = true;
  frame.checksum = 1;  // which is wrong
  BOOST_CHECK_EXCEPTION(joined(frame_bytes_of(frame)), c10::ValueError, says({"arrived damaged"}));
  frame.has_checksum = false;
  const std::string good = frame_bytes_of(frame);
  BOOST_TEST(joined(good));
  BOOST_TEST(joined(good + good.substr(0, good.size() / 2)));  // died in the middle
  BOOST_CHECK_THROW(joined(good + std::string(64, 'x')), c10::ValueError);
  std::string large = good;
  const std::uint64_t length = std::uint64_t{1} << 39;
  std::memcpy(large.data() + 8, &length, sizeof length);
  BOOST_CHECK_EXCEPTION(joined(large), c10::ValueError, says({"announced a frame"}));
  BOOST_CHECK_EXCEPTION(
      joined(good + std::string("TTM1\x10\x00\x00\x00", 8) + tcp::write_refused("go away!")), c10::ValueError,
      says({"refused: go away!"}));
}

BOOST_AUTO_TEST_CASE(damaged_bytes_of_a_relay_are_errors_or_frames) {
  std::vector<float> numbers(300, 1.5F);
  Frame frame;
  frame.path = "layer1.0";
  frame.type = "Conv2d";
  frame.dtype = 6;
  frame.dims = 2;
  frame.sizes = {3, 100};
  frame.data = numbers.data();
  frame.data_bytes = 1200;
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = frame_bytes_of(frame) + frame_bytes_of(frame);
    for (int i = 0; i < 1 + round % 4; ++i) bytes[random() % 300] = static_cast<char>(random());
    const False relay(hello_of(false), bytes);
    try {
      Reader reader(relay.name());
      while (reader.next(20s).has_value()) continue;
      BOOST_TEST(reader.ended());
    } catch (const c10::Error&) {
    }
  }
}
