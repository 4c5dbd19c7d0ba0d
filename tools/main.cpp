// The `torchtap` command.
#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "commands.hpp"
#include "preload/command.hpp"
#include "recover/command.hpp"

int main(int argc, char** argv) {
  CLI::App app{"See inside LibTorch models.", "torchtap"};
  app.set_version_flag("--version", TORCHTAP_VERSION);
  app.require_subcommand(1);
  torchtap::tools::add_list(app);
  torchtap::tools::add_record(app);
  torchtap::preload::add_command(app);
  torchtap::tools::add_show(app);
  torchtap::tools::add_diff(app);
  torchtap::tools::add_merge(app);
  torchtap::tools::add_convert(app);
  torchtap::tools::add_completion(app);
  torchtap::recover::add_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& status) {  // a subcommand's answer
    return status.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const c10::Error& error) {
    std::cerr << "torchtap: " << error.what_without_backtrace() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "torchtap: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
