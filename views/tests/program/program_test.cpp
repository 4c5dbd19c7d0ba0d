// Other programs: what they read and say, how they end, and that they do not outlive their object.
#include <boost/test/unit_test.hpp>
#include <signal.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/views/program/program.hpp>

BOOST_AUTO_TEST_SUITE(program)

using torchtap::views::program::Program;
using torchtap::views::program::Scratch;

namespace {

/// `sh -c script` with files.
struct Shell {
  explicit Shell(const std::string& script, const std::string& input = "") {
    in.put(input);
    child = std::make_unique<Program>(std::vector<std::string>{"sh", "-c", script}, in.descriptor(),
                                      out.descriptor(), messages.descriptor());
  }

  Scratch in{"test: "}, out{"test: "}, messages{"test: "};
  std::unique_ptr<Program> child;
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_program_reads_and_says_more_than_a_pipe_holds) {
  const std::string input(1 << 20, 'x');
  Shell shell("cat; head -c 300000 /dev/zero | tr '\\0' y >&2", input);
  BOOST_REQUIRE(shell.child->error() == 0);
  BOOST_TEST(shell.child->wait(60));
  BOOST_TEST(shell.child->status() == 0);
  BOOST_TEST((shell.out.text() == input));
  BOOST_TEST((shell.messages.text() == std::string(300000, 'y')));
  BOOST_TEST(shell.messages.first_line().size() == 500U);
}

BOOST_AUTO_TEST_CASE(how_it_ended_is_told) {
  Shell fails("echo one >&2; echo two >&2; exit 3");
  BOOST_TEST(fails.child->wait(60));
  BOOST_TEST(fails.child->ending() == "failed with exit status 3");
  BOOST_TEST(fails.messages.first_line() == "one");
  Shell killed("kill -9 $$");
  BOOST_TEST(killed.child->wait(60));
  BOOST_TEST(killed.child->ending() == "was ended by signal 9");
}

BOOST_AUTO_TEST_CASE(a_program_that_there_is_not_is_an_error) {
  Scratch file("test: ");
  Program missing({"torchtap-has-no-such-program"}, file.descriptor(), file.descriptor(), file.descriptor());
  BOOST_TEST(missing.error() == ENOENT);
}

BOOST_AUTO_TEST_CASE(a_program_ends_with_its_object) {
  int id = 0;
  {
    Shell endless("echo $$; exec sleep 1000");
    BOOST_TEST(!endless.child->wait(0));
    while (endless.out.text().empty()) BOOST_TEST(!endless.child->wait(0.01));
    id = std::stoi(endless.out.text());
    BOOST_TEST(::kill(id, 0) == 0);
  }
  BOOST_TEST(::kill(id, 0) == -1);
  BOOST_TEST(errno == ESRCH);
}

BOOST_AUTO_TEST_SUITE_END()
