// `torchtap explore`: runs of an explorer in the browser, or in one file.
#include <CLI/CLI.hpp>
#include <torch/csrc/autograd/grad_mode.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/views/explorer/explorer.hpp>

#include "commands.hpp"
#include "models/inputs.hpp"
#include "models/model.hpp"
#include "models/output_sum.hpp"
#include "options/option_checks.hpp"
#include "terminal/interrupt.hpp"

namespace torchtap::tools {
namespace {

namespace explorer = views::explorer;

std::string explore_examples() {
  return c10::str(R"(
Shows models as they compute, in the browser: the nested graph of calls, and how values, gradients and parameters are
distributed over time. The sources are directories that torchtap preload --explore --save wrote, or a program with an explorer of its own
(ExploreOptions().save() in C++), finished, killed, or still being written, with all their runs; or one TorchScript file, which
is run once.

)",
                  describe_inputs(), R"(

The page is served from this machine to this machine, until Ctrl-C. What is written to a directory meanwhile appears.

Examples:
  torchtap explore run1
  torchtap explore run1 run2 --port 9000
  torchtap explore run1 --export page.html
  torchtap explore model.pt --random 8x3x224x224 --backward

Exit status: 0; 2 on errors.)");
}

struct ExploreOptions {
  std::vector<std::string> sources;
  InputOptions inputs;
  std::string method = "forward";
  std::string device = "cpu";
  bool backward = false;
  bool train = false;
  std::string export_to;
  bool overwrite = false;
  std::int64_t port = 0;
  std::string address = "127.0.0.1";
  std::vector<std::string> hosts;
  std::string token;
};

explorer::ServeOptions serve_options(const ExploreOptions& options) {
  return explorer::ServeOptions()
      .port(options.port)
      .address(options.address)
      .hosts(options.hosts)
      .token(options.token);
}

/// Prints the address for a browser, and waits.
void serve_until_interrupted(const std::string& url, const ExploreOptions& options,
                             const Interrupt& interrupt) {
  std::cout << url << std::endl;
  std::cerr << "torchtap: open this in a browser; Ctrl-C ends.\n";
  if (options.address == "127.0.0.1" || options.address == "localhost" || options.address == "::1") {
    const auto end = url.find("/#"), colon = url.rfind(':', end);
    const std::string port = url.substr(colon + 1, end - colon - 1);
    std::cerr << "torchtap: to open it on another machine, run ssh -L " << port << ":localhost:" << port
              << " there, with the name of this one.\n";
  }
  if (options.address == "0.0.0.0" || options.address == "::")
    std::cerr
        << "torchtap: from other machines, open this with the IP address of this machine instead of localhost"
        << (options.hosts.empty() ? "; its name needs --hosts" : ", or a name that --hosts gives") << ".\n";
  while (interrupt.signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

void show_runs(const ExploreOptions& options, const CLI::App& command) {
  for (const char* option :
       {"--input", "--idx3", "--random", "--backward", "--train", "--method", "--device"}) {
    TORCH_CHECK_VALUE(command.count(option) == 0, "\"", options.sources.front(),
                      "\" is a directory with a run, which is not run again; omit ", option,
                      ", or name a TorchScript file.");
  }
  for (const std::string& source : options.sources) {
    namespace fs = std::filesystem;
    TORCH_CHECK_VALUE(
        fs::exists(fs::path(source) / "explorer") || !fs::exists(fs::path(source) / "manifest.json"), "\"",
        source, "\" is a recording, to be read by torchtap show, and no run of an explorer.");
  }
  if (!options.export_to.empty()) return explorer::export_page(options.sources, options.export_to);
  const Interrupt interrupt;  // before anybody can know that there is something to interrupt
  const explorer::Server server(options.sources, serve_options(options));
  serve_until_interrupted(server.url(), options, interrupt);
}

/// One pass of a TorchScript file.
void show_model(const ExploreOptions& options) {
  TORCH_CHECK_VALUE(options.sources.size() == 1,
                    "a TorchScript file is shown alone; name one file, or directories.");
  const at::Device device(options.device);
  torch::jit::Module model = load_model(options.sources.front(), device);
  const torch::jit::Method method = find_method(model, options.method);
  model.train(options.train);
  Inputs inputs(options.inputs);
  const auto batch = inputs.next();
  TORCH_CHECK_VALUE(batch.has_value(), "the files given with --input hold no batch.");
  explorer::Explorer watched(explorer::ExplorerOptions().every(1).name(options.sources.front()));
  watched.attach(selectors::modules(model, options.method));
  {
    const at::AutoGradMode mode(options.backward);
    const c10::IValue result = method(to_arguments(model, options.method, *batch, device, options.backward));
    if (options.backward) sum_of_outputs(result).backward();
  }
  for (const std::string& error : watched.errors()) std::cerr << "torchtap: " << error << '\n';
  if (!options.export_to.empty()) return watched.export_page(options.export_to);
  const Interrupt interrupt;
  serve_until_interrupted(watched.serve(serve_options(options)), options, interrupt);
}

}  // namespace

void add_explore(CLI::App& app) {
  auto* const command = app.add_subcommand("explore", "Show a model's runs in the browser");
  auto options = std::make_shared<ExploreOptions>();
  command->add_option("source", options->sources, "Directories with runs, or a TorchScript file")
      ->required()
      ->check(CLI::ExistingPath);
  add_input_options(*command, options->inputs, /*one_call=*/true);
  command->add_flag("--backward", options->backward, "Also run backward, from the sum of the outputs");
  command->add_flag("--train", options->train, "Run the model in training mode");
  command->add_option("--method", options->method, "The method to run")->capture_default_str();
  command->add_option("--device", options->device, "The device to run on")->capture_default_str();
  auto* export_to =
      command->add_option("--export", options->export_to, "Write the page with its data to this file instead")
          ->check(place());
  add_overwrite(*command, options->overwrite)->needs(export_to);
  command->add_option("--port", options->port, "The port; 0 for the first free one from 8080 on")
      ->transform(whole_number(0))
      ->capture_default_str();
  command->add_option("--address", options->address, "The address to listen on")->capture_default_str();
  command->add_option("--hosts", options->hosts,
                      "Names by which browsers may call this machine, besides localhost and IP addresses");
  command->add_option("--token", options->token,
                      "The secret in the page's address, at least 16 letters; random if not given");
  add_library_option(*command);
  command->footer(explore_examples());
  command->callback([options, command] {
    if (!options->export_to.empty()) check_free(options->export_to, options->overwrite);
    if (std::filesystem::is_directory(options->sources.front())) {
      show_runs(*options, *command);
    } else {
      show_model(*options);
    }
  });
}

}  // namespace torchtap::tools
