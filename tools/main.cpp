// The `torchtap` command.
#include <CLI/CLI.hpp>
#include <iostream>

#include "preload/command.hpp"
#include "recover/command.hpp"

int main(int argc, char** argv) {
  CLI::App app{"See inside LibTorch models.", "torchtap"};
  app.set_version_flag("--version", TORCHTAP_VERSION);
  app.require_subcommand(1);
  torchtap::preload::add_command(app);
  torchtap::recover::add_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& error) {  // a command that did its work and has bad news
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::cerr << "torchtap: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
