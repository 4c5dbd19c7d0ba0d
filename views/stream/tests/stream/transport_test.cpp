// Publishers and readers without tensors: what arrives, what is missed, and who may read.
#include "transport.hpp"

#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

using namespace torchtap_test;

BOOST_AUTO_TEST_CASE(a_reader_gets_every_frame_whole_and_in_order) {
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options());
  const auto source = server->add({"layer1.0", {}, "Conv2d", Kind::forward_output});
  Client client = here.reader(Subscription().when_full(WhenFull::wait));
  server->annotate("epoch 3");
  std::thread forward([&] {
    for (std::uint64_t i = 0; i < 20000; ++i) publish(*server, *source, i, 1 + i % 5000);
    server.reset();
  });
  const auto first = client.next(20s);
  BOOST_REQUIRE(first.has_value());
  BOOST_TEST(first->path == "layer1.0");
  BOOST_TEST(first->type == "Conv2d");
  BOOST_TEST(first->text == "epoch 3");
  BOOST_TEST((first->kind == Kind::forward_output));
  BOOST_TEST(first->time_ns > 1600000000000000000ULL);
  BOOST_TEST((read_all(client) == numbers(1, 20000)));
  forward.join();
  BOOST_TEST(client.ended());
  BOOST_TEST(client.broken() == "");
  BOOST_TEST(client.received() == 20000U);
  BOOST_TEST(client.missed() == 0U);
  BOOST_TEST(!client.demoted());
}

BOOST_AUTO_TEST_CASE(readers_share_one_copy_and_none_costs_another_a_frame) {
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options());
  const auto source = server->add({"layer1", {}, "", Kind::other});
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(here.reader(Subscription().when_full(WhenFull::wait)));
  Client slow = here.reader(Subscription().when_full(WhenFull::skip));
  BOOST_TEST(server->readers().size() == 4U);
  stream::detail::ServerCounters counted;
  std::thread forward([&] {
    for (std::uint64_t i = 0; i < 5000; ++i) publish(*server, *source, i, 1000);
    counted = server->counters();
    server.reset();
  });
  std::vector<std::thread> readers;
  std::vector<std::vector<std::uint64_t>> got(clients.size());
  for (std::size_t i = 0; i < clients.size(); ++i) {
    readers.emplace_back([&, i] {
      while (auto frame = clients[i].next(20s)) {
        if (intact(*frame)) got[i].push_back(frame->sample);
      }
    });
  }
  std::uint64_t last = 0;
  while (auto frame = slow.next(20s)) {
    BOOST_REQUIRE(intact(*frame));
    last = frame->sample;
    std::this_thread::sleep_for(2ms);
  }
  forward.join();
  for (auto& reader : readers) reader.join();
  BOOST_TEST(counted.published == 5000U);
  BOOST_TEST(counted.bytes == 5000U * 8000U);
  for (const auto& each : got) BOOST_TEST((each == numbers(0, 5000)));
  BOOST_TEST(slow.received() + slow.missed() == 5000U);
  BOOST_TEST(slow.missed() > 0U);
  BOOST_TEST(last > 0U);
}

// Programs wait for their readers before they publish.
BOOST_AUTO_TEST_CASE(a_reader_that_is_listed_gets_the_next_frame_of_every_source) {
  const Rendezvous here;
  for (int round = 0; round < 5; ++round) {
    Server server("test", here.options());
    std::vector<std::shared_ptr<SourceState>> sources;  // so many that telling them of a reader takes a while
    for (int i = 0; i < 5000; ++i) sources.push_back(server.add({"layer", {}, "", Kind::other}));
    std::thread program([&] {
      while (server.readers().empty()) {
      }
      publish(server, *sources.back(), 7);
    });
    Client client = here.reader(Subscription().when_full(WhenFull::wait));
    program.join();
    const auto first = client.next(0s);
    BOOST_TEST_REQUIRE(first.has_value());
    BOOST_TEST(first->sample == 7U);
  }
}

BOOST_AUTO_TEST_CASE(received_and_missed_are_all_that_was_published) {
  const Rendezvous here;
  for (int round = 0; round < 20; ++round) {
    auto server = std::make_unique<Server>("test", here.options(1 << 16));
    const auto a = server->add({"a", {}, "", Kind::other});
    const auto b = server->add({"b", {}, "", Kind::other});
    Client all = here.reader(Subscription().when_full(WhenFull::skip));
    Client only_b = here.reader(Subscription().when_full(WhenFull::skip).names({"b"}));
    std::uint64_t of_b = 0;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      publish(*server, i % 7 == 0 ? *b : *a, i, 1 + i % 300);
      of_b += i % 7 == 0 ? 1 : 0;
      if (i % 11 == 0) all.next(0s);
      if (i % 31 == 0) only_b.next(0s);
    }
    server.reset();
    read_all(all);
    read_all(only_b);
    BOOST_TEST(all.received() + all.missed() == 3000U);
    BOOST_TEST(only_b.received() + only_b.missed() == of_b);
    BOOST_TEST(all.missed() > 0U);
  }
}

BOOST_AUTO_TEST_CASE(subscriptions_choose_and_change_while_both_run) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto one = server.add({"layer1.conv", {"alias"}, "", Kind::forward_output});
  const auto two = server.add({"layer2.conv", {}, "", Kind::forward_output});
  const auto gradient = server.add({"layer1.conv", {}, "", Kind::backward_output});
  BOOST_TEST(!one->wanted());
  Client client = here.reader(Subscription().names({"layer1*"}).kinds({Kind::forward_output}));
  BOOST_TEST(one->wanted());
  BOOST_TEST(!two->wanted());
  BOOST_TEST(!gradient->wanted());
  client.subscribe(Subscription().names({"layer[2-3].*"}));
  BOOST_TEST(!one->wanted());
  BOOST_TEST(two->wanted());
  client.subscribe(Subscription().names({"alias"}));
  BOOST_TEST(one->wanted());
  const auto late = server.add({"late", {"alias"}, "", Kind::other});
  BOOST_TEST(late->wanted());
  client.subscribe(Subscription().every(10));
  for (std::uint64_t i = 0; i < 100; ++i) {
    publish(server, *one, i);
    publish(server, *two, i);
  }
  std::map<std::string, std::vector<std::uint64_t>> got;
  while (auto frame = client.next(0s)) got[std::string(frame->path)].push_back(frame->sample);
  BOOST_TEST((got["layer1.conv"] == numbers(0, 100, 10)));
  BOOST_TEST((got["layer2.conv"] == numbers(0, 100, 10)));
  client.subscribe(Subscription().hz(0.001));  // one now, the next after a quarter of an hour
  for (std::uint64_t i = 0; i < 100; ++i) {
    publish(server, *one, i);
    publish(server, *two, i);
  }
  got.clear();
  while (auto frame = client.next(0s)) got[std::string(frame->path)].push_back(frame->sample);
  BOOST_TEST((got["layer1.conv"] == numbers(0, 1)));
  BOOST_TEST((got["layer2.conv"] == numbers(0, 1)));
  BOOST_TEST(client.missed() == 0U);
}

BOOST_AUTO_TEST_CASE(wrong_subscriptions_are_errors_of_the_reader) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto wrong = [&](const Subscription& subscription, const char* part) {
    BOOST_CHECK_EXCEPTION(here.reader(subscription), c10::ValueError, says({"Reader", part}));
  };
  wrong(Subscription().every(0), "every(0)");
  wrong(Subscription().hz(-1), "hz(-1)");
  wrong(Subscription().names({std::string(40000, 'a')}), "globs");
  BOOST_CHECK_EXCEPTION(Client("nobody", {}, here.path(), 0s), c10::ValueError,
                        says({"no program publishes \"nobody\"", "\"test\""}));
  BOOST_CHECK_EXCEPTION(Client("no/name", {}, here.path(), 0s), c10::ValueError,
                        says({"no/name", "no name"}));
  BOOST_TEST(server.readers().empty());
}

BOOST_AUTO_TEST_CASE(readers_come_late_leave_and_come_again) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto source = server.add({"a", {}, "", Kind::other});
  BOOST_TEST(!publish(server, *source, 0));
  {
    Client first = here.reader();
    BOOST_TEST(publish(server, *source, 1));
    Client second = here.reader();
    BOOST_TEST(publish(server, *source, 2));
    BOOST_TEST(first.next(20s)->sample == 1U);
    BOOST_TEST(second.next(20s)->sample == 2U);
  }
  while (source->wanted()) std::this_thread::sleep_for(1ms);
  BOOST_TEST(!publish(server, *source, 3));
  Client again = here.reader();
  BOOST_TEST(publish(server, *source, 4));
  BOOST_TEST(again.next(20s)->sample == 4U);
}

BOOST_AUTO_TEST_CASE(there_is_room_for_64_readers) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto source = server.add({"a", {}, "", Kind::other});
  std::vector<Client> clients;
  for (int i = 0; i < 64; ++i) clients.push_back(here.reader());
  BOOST_CHECK_EXCEPTION(here.reader(), c10::ValueError, says({"refused", "64 readers"}));
  BOOST_TEST(publish(server, *source, 7));
  for (auto& client : clients) BOOST_TEST(client.next(20s)->sample == 7U);
  clients.pop_back();
  while (server.readers().size() == 64) std::this_thread::sleep_for(1ms);
  clients.push_back(here.reader());
  BOOST_TEST(publish(server, *source, 8));
  for (auto& client : clients) BOOST_TEST(client.next(20s)->sample == 8U);
}

BOOST_AUTO_TEST_CASE(a_reader_that_stops_costs_one_wait_and_others_nothing) {
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options(1 << 16, 50ms));
  const auto source = server->add({"a", {}, "", Kind::other});
  Client stopped = here.reader(Subscription().when_full(WhenFull::wait));
  Client other = here.reader(Subscription().when_full(WhenFull::wait));
  std::atomic<std::uint64_t> read{0};
  std::vector<stream::detail::ReaderState> states;
  std::thread forward([&] {
    for (std::uint64_t i = 0; i < 2000; ++i) {
      publish(*server, *source, i, 500);
      // So that `other`, whose thread may not run for a while, is not the one that is waited for too long.
      while (i > read.load() + 5) std::this_thread::yield();
    }
    states = server->readers();
    server.reset();
  });
  std::vector<std::uint64_t> got;
  while (auto frame = other.next(20s)) {
    got.push_back(intact(*frame) ? frame->sample : UINT64_MAX);
    ++read;
  }
  forward.join();
  BOOST_TEST((got == numbers(0, 2000)));
  BOOST_REQUIRE(states.size() == 2U);
  BOOST_TEST(states[0].demoted);
  BOOST_TEST(!states[1].demoted);
  BOOST_TEST(other.missed() == 0U);
  read_all(stopped);  // it goes on, with the newest
  BOOST_TEST(stopped.demoted());
  BOOST_TEST(stopped.received() + stopped.missed() == 2000U);
}

BOOST_AUTO_TEST_CASE(a_frame_in_use_that_is_overwritten_is_known_to_be) {
  const Rendezvous here;
  Server server("test", here.options(1 << 16, 1ms));
  const auto source = server.add({"a", {}, "", Kind::other});
  Client client = here.reader(Subscription().when_full(WhenFull::wait));
  publish(server, *source, 0, 100);
  const auto frame = client.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(client.whole());
  for (std::uint64_t i = 1; i < 500; ++i) publish(server, *source, i, 100);
  BOOST_TEST(!client.whole());
  BOOST_TEST(client.demoted());
  client.release();
  BOOST_TEST(client.received() == 0U);
  BOOST_TEST(client.missed() == 499U);
  BOOST_TEST(client.next(20s)->sample == 499U);  // it goes on with the newest
  publish(server, *source, 500, 100);
  BOOST_TEST(client.next(20s)->sample == 500U);
  BOOST_TEST(!client.next(0s).has_value());
  BOOST_TEST(client.received() + client.missed() == 501U);
}

BOOST_AUTO_TEST_CASE(a_tensor_that_does_not_fit_is_said_to_be_missing) {
  const Rendezvous here;
  Server server("test", here.options(1 << 16));
  const auto source = server.add({"a", {}, "", Kind::other});
  Client client = here.reader();
  BOOST_TEST(publish(server, *source, 0, 5000));
  BOOST_TEST(publish(server, *source, 1, 3000));
  const auto first = client.next(20s);
  BOOST_REQUIRE(first.has_value());
  BOOST_TEST(first->without_data);
  BOOST_TEST(first->sizes[0] == 5000);
  BOOST_TEST(first->text.find("40000 bytes") != std::string_view::npos);
  BOOST_TEST(client.next(20s)->sample == 1U);
}

BOOST_AUTO_TEST_CASE(threads_publish_at_the_same_time) {
  const Rendezvous here;
  auto server = std::make_unique<Server>("test", here.options(1 << 20));
  Client client = here.reader(Subscription().when_full(WhenFull::wait));
  std::vector<std::shared_ptr<SourceState>> sources;
  for (int i = 0; i < 8; ++i) sources.push_back(server->add({std::to_string(i), {}, "", Kind::other}));
  std::thread forwards([&] {
    std::vector<std::thread> threads;
    for (auto& source : sources) {
      threads.emplace_back([&] {
        for (std::uint64_t i = 0; i < 2000; ++i) publish(*server, *source, i, 1 + i * 37 % 6000);
      });
    }
    for (auto& thread : threads) thread.join();
    server.reset();
  });
  std::map<std::string, std::vector<std::uint64_t>> got;
  std::map<std::string, std::uint32_t> thread_of;
  while (auto frame = client.next(20s)) {
    BOOST_REQUIRE(intact(*frame));
    got[std::string(frame->path)].push_back(frame->sample);
    thread_of[std::string(frame->path)] = frame->thread;
  }
  forwards.join();
  BOOST_TEST(got.size() == 8U);
  for (const auto& entry : got) BOOST_TEST((entry.second == numbers(0, 2000)));
  std::map<std::uint32_t, int> threads;
  for (const auto& entry : thread_of) ++threads[entry.second];
  BOOST_TEST(threads.size() == 8U);
}

BOOST_AUTO_TEST_CASE(bytes_that_no_manifest_holds_are_replaced) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto source =
      server.add({"m\xC3\xA4ps.\xFF", {"al\xFEias"}, std::string("Conv\xED\xA0\x80\0D", 9), Kind::other});
  server.annotate("caf\xE9");
  Client client = here.reader(Subscription().names({"m\xC3\xA4ps.*"}).label("\xFFlabel"));
  const std::string bad = "\xEF\xBF\xBD";
  Frame frame;
  frame.dims = 1;
  frame.result = "mean\xFF";
  BOOST_TEST(server.publish(*source, frame, source->readers_of(0)));
  const auto got = client.next(20s);
  BOOST_TEST_REQUIRE(got.has_value());
  BOOST_TEST(got->path == "m\xC3\xA4ps." + bad);
  BOOST_TEST(got->type == "Conv" + bad + bad + bad + bad + "D");
  BOOST_TEST(got->text == "caf" + bad);
  BOOST_TEST(got->result == "mean" + bad);
  BOOST_TEST(stream::detail::ask_status(here / "test.sock").find("label\t" + bad + "label\n") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_name_belongs_to_one_program) {
  const Rendezvous here;
  {
    Server server("test", here.options());
    BOOST_CHECK_EXCEPTION(Server("test", here.options()), c10::ValueError,
                          says({"process " + std::to_string(::getpid()), "another name"}));
    struct stat status {};
    BOOST_REQUIRE(::stat((here / "test.sock").c_str(), &status) == 0);
    BOOST_TEST((status.st_mode & 0777) == 0600U);
  }
  BOOST_TEST(!fs::exists(here / "test.sock"));
  Server again("test", here.options());
  BOOST_CHECK_EXCEPTION(Server(".hidden", here.options()), c10::ValueError, says({".hidden"}));
  ServerOptions tiny = here.options();
  tiny.bytes = 100;
  BOOST_CHECK_EXCEPTION(Server("tiny", tiny), c10::ValueError, says({"bytes(100)"}));
}

BOOST_AUTO_TEST_CASE(a_directory_that_others_may_enter_is_refused) {
  const Rendezvous here;
  BOOST_REQUIRE(::chmod(here.path().c_str(), 0755) == 0);
  BOOST_CHECK_EXCEPTION(Server("test", here.options()), c10::ValueError, says({"0700"}));
  BOOST_REQUIRE(::chmod(here.path().c_str(), 0700) == 0);
  const std::string link = here / "link";
  BOOST_REQUIRE(::symlink(here.path().c_str(), link.c_str()) == 0);
  ServerOptions linked = here.options();
  linked.directory = link;
  BOOST_CHECK_EXCEPTION(Server("test", linked), c10::ValueError, says({"link"}));
}

BOOST_AUTO_TEST_CASE(the_status_says_who_reads) {
  const Rendezvous here;
  Server server("test", here.options());
  const auto source = server.add({"a", {}, "", Kind::other});
  Client client = here.reader(Subscription().names({"a*"}).label("watch").hz(5));
  publish(server, *source, 0);
  const std::string status = stream::detail::ask_status(here / "test.sock");
  for (const char* part :
       {"name\ttest\n", "frames\t1\n", "label\twatch\n", "glob\ta*\n", "hz\t5\n", "offered\t1\n"}) {
    BOOST_TEST(status.find(part) != std::string::npos, part << " is not in " << status);
  }
  BOOST_TEST(status.find("pid\t" + std::to_string(::getpid())) != std::string::npos);
}
