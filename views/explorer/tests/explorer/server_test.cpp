// The server, as browsers and strangers see it.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include <torchtap/views/explorer/detail/assets.hpp>
#include <torchtap/views/explorer/detail/bytes.hpp>
#include <torchtap/views/explorer/detail/column_bytes.hpp>

#include "client.hpp"

BOOST_AUTO_TEST_SUITE(server)

using namespace support;
using torchtap_test::says;
using torchtap_test::TemporaryDirectory;

BOOST_AUTO_TEST_CASE(answers_those_who_know_the_token_and_nobody_else) {
  const Served served;
  const Response runs = served.get("/api/v1/runs");
  BOOST_TEST(runs.status == 200);
  BOOST_TEST(runs.body.find("\"name\":\"run <1>\"") != std::string::npos);
  BOOST_TEST(runs.body.find("\"modes\":[\"train\"]") != std::string::npos);
  for (const char* const header :
       {"Content-Security-Policy: default-src 'none'; script-src 'self'",
        "; frame-ancestors http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview:",
        "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin"})
    BOOST_TEST(runs.has(header), header);
  BOOST_TEST(!runs.has("Access-Control"));
  BOOST_TEST(served.get("/api/v1/runs", "").status == 403);
  BOOST_TEST(served.get("/api/v1/runs", "Authorization: Bearer " + std::string(32, '0') + "\r\n").status ==
             403);
  BOOST_TEST(served.get("/api/v1/runs", "Authorization: " + served.token + "\r\n").status == 403);
  BOOST_TEST(served.get("/api/v1/runs", "Cookie: token=" + served.token + "\r\n").status == 403);
  BOOST_TEST(served.get("/api/v1/runs?token=" + served.token, "").status == 403);
}

BOOST_AUTO_TEST_CASE(refuses_names_that_are_not_its_own) {
  const Served served;
  const auto as = [&](const std::string& host) {
    return served
        .ask("GET /api/v1/runs HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" +
             served.authorization() + "\r\n")
        .status;
  };
  const std::string port = std::to_string(served.port);
  BOOST_TEST(as("localhost:" + port) == 200);
  BOOST_TEST(as("LOCALHOST:" + port) == 200);
  BOOST_TEST(as("evil.example") == 421);
  BOOST_TEST(as("evil.example:" + port) == 421);
  BOOST_TEST(as("127.0.0.1.evil.example:" + port) == 421);
  BOOST_TEST(as("evil.example:80:80") == 421);
  BOOST_TEST(as("[evil.example]:" + port) == 421);
  BOOST_TEST(as("1.2.3:" + port) == 421);
  BOOST_TEST(as("0x7f000001:" + port) == 421);
  BOOST_TEST(as("") == 421);
  // No page of another site has an address for a name, and a tunnel has a port of its own.
  for (const char* const address :
       {"192.0.2.2:8080", "127.0.0.2", "[::1]:9000", "[2001:db8::7]", "localhost:9000"})
    BOOST_TEST(as(address) == 200, address);
  BOOST_TEST(served.ask("GET / HTTP/1.0\r\n\r\n").status == 421);
}

BOOST_AUTO_TEST_CASE(says_what_it_does_not_have) {
  const Served served;
  for (const char* const path : {"/api/v1", "/api/v1/none", "/api/v1/runs/r1/graph", "/api/v1/runs/r0/none",
                                 "/api/v1/runs/r0/graph?mode=eval", "/api/v2/runs", "/api/v1/compare",
                                 "/../../etc/passwd", "/app.js/..", "/%2e%2e/etc/passwd"})
    BOOST_TEST(served.get(path).status == 404, path);
  for (const char* const path : {"/api/v1/runs/r0/graph?mode=x", "/api/v1/runs/r0/columns?ids=a",
                                 "/api/v1/runs/r0/columns?since=-1", "/api/v1/runs/r%zz/graph"})
    BOOST_TEST(served.get(path).status == 400, path);
  BOOST_TEST(served
                 .ask("POST /api/v1/runs HTTP/1.1\r\nHost: " + served.host() + "\r\nConnection: close\r\n" +
                      served.authorization() + "Content-Length: 0\r\n\r\n")
                 .status == 405);
  BOOST_TEST(served
                 .ask("PUT /api/v1/runs/r0/control HTTP/1.1\r\nHost: " + served.host() +
                      "\r\nConnection: close\r\n" + served.authorization() + "Content-Length: 2\r\n\r\n{}")
                 .status == 403);
  const std::string large(9000, 'x');
  BOOST_TEST(served.get("/", "X-Large: " + large + "\r\n").status == 413);
}

BOOST_AUTO_TEST_CASE(graphs_have_tags_by_which_they_are_not_sent_twice) {
  Served served;
  const Response first = served.get("/api/v1/runs/r0/graph?mode=train");
  BOOST_TEST(first.status == 200);
  std::smatch tag;
  BOOST_REQUIRE(std::regex_search(first.head, tag, std::regex("ETag: (\\S+)")));
  const Response again = served.get("/api/v1/runs/r0/graph?mode=train",
                                    served.authorization() + "If-None-Match: " + tag[1].str() + "\r\n");
  BOOST_TEST(again.status == 304);
  BOOST_TEST(again.body == "");
  served.train(1);
  BOOST_TEST(served
                 .get("/api/v1/runs/r0/graph?mode=train",
                      served.authorization() + "If-None-Match: " + tag[1].str() + "\r\n")
                 .status == 200);
}

BOOST_AUTO_TEST_CASE(columns_are_what_was_measured_and_only_new_ones_come_again) {
  Served served;
  const auto read = [&](const std::string& query) {
    const Response response = served.get("/api/v1/runs/r0/columns?" + query);
    BOOST_REQUIRE(response.status == 200);
    return response.body;
  };
  const std::string body = read("ids=0,2");
  parts::Bytes bytes(body);
  BOOST_TEST(bytes.get<std::uint32_t>() == 0x434c5054U);
  BOOST_TEST(bytes.get<std::uint32_t>() == 1U);
  BOOST_TEST(bytes.get<std::uint32_t>() == 3U);
  BOOST_TEST(bytes.get<std::uint32_t>() == 2U);  // series
  BOOST_TEST(bytes.get<std::uint32_t>() == 0U);  // the id of the first
  const auto sequence = bytes.get<std::uint64_t>();
  BOOST_TEST(bytes.get<std::uint32_t>() == (0x80000000U | 3U));
  std::string expected;
  parts::models_of(served.watched).first()->run()->each_series([&](const parts::Series& series) {
    if (!expected.empty()) return;
    for (const auto& column : series.columns()) parts::put_column(expected, column);
  });
  BOOST_TEST(bytes.text(expected.size()) == expected);
  const std::string nothing = read("ids=0&since=" + std::to_string(sequence));
  BOOST_TEST(nothing.size() == 16U);
  served.train(1);
  const std::string more = read("ids=0&since=" + std::to_string(sequence));
  parts::Bytes news(more);
  news.text(16 + 12);
  BOOST_TEST(news.get<std::uint32_t>() == 1U);
  BOOST_TEST(news.get<std::int64_t>() == 3);  // its step
}

BOOST_AUTO_TEST_CASE(viewers_are_told_what_is_new) {
  Served served;
  Client client(served.port);
  BOOST_TEST(served.open_live(client, "http://" + served.host()).find("101") != std::string::npos);
  client.send(frame("{\"token\":\"" + served.token + "\"}"));
  auto [kind, notice] = next_message(client);
  BOOST_TEST(kind == 0x81);
  BOOST_TEST(notice.find("\"run\":\"r0\",\"step\":2") != std::string::npos);
  served.train(1);
  for (int i = 0; i < 20 && notice.find("\"step\":3") == std::string::npos; ++i)
    notice = next_message(client).second;
  BOOST_TEST(notice.find("\"step\":3") != std::string::npos);
  BOOST_TEST(notice.find("\"state\":\"running\"") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(viewers_without_the_token_or_from_elsewhere_are_turned_away) {
  const Served served;
  Client stranger(served.port), guesser(served.port), silent(served.port);
  BOOST_TEST(served.open_live(stranger, "http://evil.example").find("403") != std::string::npos);
  BOOST_TEST(served.open_live(guesser, "http://" + served.host()).find("101") != std::string::npos);
  guesser.send(frame("{\"token\":\"" + std::string(32, '0') + "\"}"));
  const auto [kind, reason] = next_message(guesser);
  BOOST_TEST(kind == 0x88);
  BOOST_REQUIRE(reason.size() >= 2U);
  BOOST_TEST((static_cast<unsigned char>(reason[0]) * 256 + static_cast<unsigned char>(reason[1])) == 4403);
  // One that says nothing hears nothing: the server goes while it waits.
  BOOST_TEST(served.open_live(silent, "http://" + served.host()).find("101") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(names_are_known_if_the_options_give_them) {
  const Served served(explorer::ServeOptions().hosts({"Lab.example", "proxy.example:8443"}));
  const auto as = [&](const std::string& host) {
    return served
        .ask("GET /api/v1/runs HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" +
             served.authorization() + "\r\n")
        .status;
  };
  for (const char* const host : {"lab.example", "lab.example:8080", "LAB.example:1", "proxy.example:8443"})
    BOOST_TEST(as(host) == 200, host);
  for (const char* const host : {"proxy.example", "proxy.example:8080", "x.lab.example"})
    BOOST_TEST(as(host) == 421, host);
}

BOOST_AUTO_TEST_CASE(strangers_do_not_keep_viewers_out) {
  Served served;
  Client early(served.port);  // a viewer from before
  served.open_live(early, "http://" + served.host());
  early.send(frame("{\"token\":\"" + served.token + "\"}"));
  BOOST_TEST(next_message(early).first == 0x81);
  std::vector<std::unique_ptr<Client>> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(std::make_unique<Client>(served.port));
    if (i % 2 == 0) served.open_live(*strangers.back(), "http://" + served.host());
  }
  BOOST_TEST(served.get("/api/v1/runs").status == 200);
  Client viewer(served.port);
  BOOST_TEST(served.open_live(viewer, "http://" + served.host()).find("101") != std::string::npos);
  viewer.send(frame("{\"token\":\"" + served.token + "\"}"));
  BOOST_TEST(next_message(viewer).first == 0x81);
  served.train(1);
  BOOST_TEST(next_message(early).first == 0x81);
  // Those that say nothing are sent away, the first ones for the others' sake.
  std::string byte;
  BOOST_TEST(strangers.front()->receive_exactly(1, byte) == 0U);
  BOOST_TEST(strangers[298]->receive_exactly(1, byte) == 0U);
  BOOST_TEST(strangers[299]->receive_exactly(1, byte) == 0U);
}

BOOST_AUTO_TEST_CASE(the_page_is_sent_packed_to_those_who_can_unpack_it) {
  const Served served;
  const parts::Asset* const script = parts::find_asset("/app.js");
  BOOST_REQUIRE(script != nullptr);
  const std::string plain(reinterpret_cast<const char*>(script->data), script->size);
  const Response whole = served.get("/app.js", "");
  BOOST_TEST(whole.status == 200);
  BOOST_TEST((whole.body == plain));
  BOOST_TEST(!whole.has("Content-Encoding"));
  BOOST_TEST(whole.has("Vary: Accept-Encoding"));
  BOOST_REQUIRE(script->packed != nullptr);  // gzip is where these tests are built
  const Response packed = served.get("/app.js", "Accept-Encoding: deflate, gzip, br\r\n");
  BOOST_TEST(packed.has("Content-Encoding: gzip"));
  BOOST_TEST(packed.body.size() < plain.size() / 2);
  const TemporaryDirectory directory;
  std::ofstream(directory / "app.js.gz", std::ios::binary) << packed.body;
  BOOST_REQUIRE(std::system(("gzip -d " + (directory / "app.js.gz")).c_str()) == 0);
  std::ifstream in(directory / "app.js", std::ios::binary);
  BOOST_TEST((std::string(std::istreambuf_iterator<char>(in), {}) == plain));
  // Each form has a tag of its own.
  std::smatch tag;
  BOOST_REQUIRE(std::regex_search(packed.head, tag, std::regex("ETag: (\\S+)")));
  const std::string known = "If-None-Match: " + tag[1].str() + "\r\n";
  BOOST_TEST(served.get("/app.js", "Accept-Encoding: gzip\r\n" + known).status == 304);
  BOOST_TEST(served.get("/app.js", known).status == 200);
}

BOOST_AUTO_TEST_CASE(the_newer_loopback_address_works_as_well) {
  const Served served(explorer::ServeOptions().address("::1"));
  BOOST_TEST(served.v6);
  BOOST_TEST(served.get("/api/v1/runs").status == 200);
  BOOST_TEST(served.get("/").status == 200);
  BOOST_TEST(served
                 .ask("GET / HTTP/1.1\r\nHost: localhost:" + std::to_string(served.port) +
                      "\r\nConnection: close\r\n\r\n")
                 .status == 200);
  Client viewer(served.port, true);
  BOOST_TEST(served.open_live(viewer, "http://" + served.host()).find("101") != std::string::npos);
  viewer.send(frame("{\"token\":\"" + served.token + "\"}"));
  BOOST_TEST(next_message(viewer).first == 0x81);
}

BOOST_AUTO_TEST_CASE(pages_change_how_often_is_recorded_only_if_they_may) {
  Served served(explorer::ServeOptions().control(true));
  const std::string known = served.authorization() + served.origin();
  BOOST_TEST(served.get("/api/v1/runs").body.find("\"control\":true,\"every\":1,\"paused\":false") !=
             std::string::npos);
  const auto recorded = [&] {
    std::vector<std::int64_t> steps;
    parts::models_of(served.watched).first()->run()->each_series([&](const parts::Series& series) {
      if (!steps.empty() || series.key().what != parts::What::output) return;
      for (const auto& column : series.columns()) steps.push_back(column.first_step);
    });
    return steps;
  };
  BOOST_TEST(served.put("{\"paused\":true}", known).status == 200);
  served.train(3);  // 3, 4, 5
  BOOST_TEST((recorded() == std::vector<std::int64_t>{0, 1, 2}));
  const Response changed = served.put("{\"every\":4,\"paused\":false}", known);
  BOOST_TEST(changed.body == "{\"every\":4,\"paused\":false}");
  served.train(7);  // up to 12
  BOOST_TEST((recorded() == std::vector<std::int64_t>{0, 1, 2, 8, 12}));
  for (const char* const bad : {"", "[]", "{}", "{\"every\":-1}", "{\"every\":1.5}", "{\"paused\":1}",
                                "{\"stop\":true}", "{\"every\":2,\"paused\":\"no\"}"})
    BOOST_TEST(served.put(bad, known).status == 400, bad);
  BOOST_TEST(served.put("{\"paused\":true}", served.authorization()).status == 403);
  BOOST_TEST(served.put("{\"paused\":true}", served.origin()).status == 403);
  BOOST_TEST(
      served.put("{\"paused\":true}", served.authorization() + "Origin: http://evil.example\r\n").status ==
      403);
  BOOST_TEST(served.get("/api/v1/runs").body.find("\"every\":4,\"paused\":false") != std::string::npos);
  const Served closed;
  BOOST_TEST(closed.put("{\"paused\":true}", closed.authorization() + closed.origin()).status == 403);
}

BOOST_AUTO_TEST_CASE(two_servers_take_two_ports_and_a_port_that_is_taken_is_an_error) {
  const Served one, two;
  BOOST_TEST(one.port != two.port);
  BOOST_TEST(one.token != two.token);
  const parts::Runs runs{parts::models_of(one.watched).first()->run()};
  BOOST_CHECK_EXCEPTION(
      parts::HttpServer(runs, explorer::ServeOptions().port(one.port)), c10::Error,
      says({"cannot listen on 127.0.0.1:" + std::to_string(one.port), "ServeOptions::port"}));
  BOOST_CHECK_EXCEPTION(parts::HttpServer(runs, explorer::ServeOptions().port(70000)), c10::ValueError,
                        says({"70000"}));
  BOOST_CHECK_EXCEPTION(parts::HttpServer(runs, explorer::ServeOptions().address("nowhere")), c10::ValueError,
                        says({"nowhere", "127.0.0.1"}));
  BOOST_CHECK_EXCEPTION(parts::HttpServer(runs, explorer::ServeOptions().token("short")), c10::ValueError,
                        says({"at least 16"}));
  BOOST_CHECK_EXCEPTION(explorer::Server(std::vector<std::string>{}), c10::ValueError,
                        says({"nothing to show"}));
}

BOOST_AUTO_TEST_SUITE_END()
