#include <CLI/CLI.hpp>

#include <chrono>
#include <iostream>
#include <memory>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/relay.hpp>

#include "commands.hpp"
#include "options/option_checks.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/message_text.hpp"
#include "terminal/terminal.hpp"
#include "token.hpp"

namespace torchtap::tools::stream {
namespace {

using views::stream::Relay;
using views::stream::RelayOptions;

constexpr char kRelayExamples[] = R"(
Sends what a program of this machine publishes to readers on others:
  torchtap watch tcp:HOST:PORT      (tail, video, and torchtap.stream.Reader("tcp:HOST:PORT"), too)
Each reader says what it wants; none is waited for, and each knows how many tensors it missed.

It listens for this machine alone, where any user may connect, unless --listen says otherwise. Others have to know a
token: --token-file names a file that only you can read, which is made if it is missing; readers need a copy of it. The
token is never sent. Tensors are, and nothing is encrypted: over networks that you do not trust, leave the relay at
127.0.0.1 and use ssh -L 7777:127.0.0.1:7777 HOST.

Prints the address, and ends when the program ends, or by Ctrl-C.

Examples:
  torchtap relay resnet --listen 127.0.0.1:7777
  torchtap relay resnet --listen 0.0.0.0:7777 --token-file ~/.torchtap-token

Exit status: 0; 2 on errors.)";

struct RelayCommandOptions {
  std::string name;
  std::string listen = "127.0.0.1:7777";
  std::string token_file;
  std::int64_t readers = 16;
  std::string directory;
};

/// The signal that ended it; 0 if none did.
int relay(const RelayCommandOptions& options) {
  RelayOptions how;
  how.listen(options.listen).readers(options.readers).directory(options.directory);
  if (!options.token_file.empty()) how.token(read_or_make_token(options.token_file));
  const Relay relay(options.name, how);
  std::cout << tools::printable(options.name) << " at tcp:" << relay.address() << std::endl;
  const tools::Interrupt interrupt;
  while (interrupt.signal() == 0 && !relay.ended())
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (relay.ended()) std::cerr << "torchtap: the program ended.\n";
  if (relay.refused() != 0)
    std::cerr << "torchtap: refused " << tools::counted(relay.refused(), "connection") << ".\n";
  return interrupt.signal();
}

}  // namespace

void add_relay(CLI::App& app) {
  auto options = std::make_shared<RelayCommandOptions>();
  CLI::App* command =
      app.add_subcommand("relay", "Send what a program publishes to readers on other machines");
  command->footer(kRelayExamples);
  command->add_option("name", options->name, "The stream: what the publisher calls itself")->required();
  command->add_option("--listen", options->listen, "HOST:PORT; port 0 is any that is free")
      ->capture_default_str();
  command->add_option("--token-file", options->token_file, "A file with a token that readers have to know")
      ->check(tools::place());
  command->add_option("--readers", options->readers, "How many readers there may be at once")
      ->transform(tools::whole_number(1, 60))
      ->capture_default_str();
  command->add_option("--directory", options->directory,
                      "Where publishers are; by default in $XDG_RUNTIME_DIR/torchtap, /tmp/torchtap-UID and "
                      "$HOME/.torchtap");
  command->callback([options] {
    if (const int signal = relay(*options)) {
      std::cout << std::flush;
      tools::end_by(signal);
    }
  });
}

}  // namespace torchtap::tools::stream
