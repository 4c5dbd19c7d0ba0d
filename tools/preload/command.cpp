#include "command.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cereal/archives/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "config.hpp"

namespace torchtap::preload {
namespace {

namespace fs = std::filesystem;

constexpr char kExamples[] = R"(
Records inside a program that is not rebuilt: any that uses LibTorch as a shared library. Modules are called by
their paths once the program has asked a model for its parameters or set it to train or eval; else by type and
order of first use ("Linear#0"). What a header of LibTorch's defines (BatchNorm, InstanceNorm) and the program's
own types are compiled into it and cannot be seen; at its end it is said which were not.

The recording is written when the program ends, also by exit, an uncaught exception, SIGTERM, SIGINT or SIGHUP.
Its output and exit status are its own.

Examples:
  torchtap preload --types 'Conv2d|Linear' --reduce moments --save out/ -- ./program its arguments
  torchtap preload --what grad-output --names 'layer4.*' --reduce abs_max,histogram:64 --save out/ -- ./train
)";

/// Beside the command in a build tree, in the library folder next to it where it was installed.
fs::path find_library(const std::string& name) {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& folder : {here / "..", here / ".." / TORCHTAP_LIBRARY_FOLDER}) {
    std::error_code error;
    const fs::path found = fs::canonical(folder / name, error);
    if (!error) return found;
  }
  throw std::runtime_error(name + " is neither beside " + here.string() + " nor in its ../" +
                           TORCHTAP_LIBRARY_FOLDER + ".");
}

[[noreturn]] void become(const Config& config, std::vector<std::string>& program) {
  std::ostringstream text;
  {
    cereal::JSONOutputArchive archive(text, cereal::JSONOutputArchive::Options::NoIndent());
    const_cast<Config&>(config).serialize(archive);
  }
  ::setenv(kVariable, text.str().c_str(), 1);
  // The one that stands in front of LibTorch has to be named itself: what it needs comes behind LibTorch.
  std::string libraries = find_library("libtorchtap_preload.so").string() + ":" +
                          find_library("libtorchtap_transparent.so").string();
  if (const char* others = std::getenv("LD_PRELOAD")) libraries += std::string(":") + others;
  ::setenv("LD_PRELOAD", libraries.c_str(), 1);
  std::vector<char*> arguments;
  for (auto& argument : program) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  // As a shell has it: 127 not found, 126 not to be run.
  const int error = errno;
  std::cerr << "torchtap: cannot run " << program[0] << ": " << std::strerror(error) << '\n';
  std::exit(error == ENOENT ? 127 : 126);
}

}  // namespace

void add_command(CLI::App& app) {
  auto config = std::make_shared<Config>();
  auto program = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("preload", "Record in a program that is not rebuilt");
  command->footer(kExamples);
  command->add_option("--what", config->what, "What to record")
      ->check(CLI::IsMember({"pre", "input", "output", "grad-input", "grad-output"}))
      ->capture_default_str();
  command->add_option("--types", config->types, "Regular expression on whole type names: 'Conv2d|Linear'");
  command->add_option("--names", config->names, "Globs on paths: 'layer1.*'")->delimiter(',');
  command->add_option(
      "--reduce", config->reduce,
      "Reductions, comma-separated: 'moments', 'mean,histogram:64:-4:4'; without, every sample "
      "is kept");
  command->add_option("--over", config->over, "Dimensions of a sample that are rows: '0' or '0,2,3'")
      ->delimiter(',');
  command
      ->add_flag("--elementwise", config->elementwise,
                 "Reduce elementwise over samples; without this and --over, over all elements")
      ->excludes("--over");
  command->add_option("--save", config->save, "Where the recording goes")->required();
  command->add_flag("--overwrite", config->overwrite, "Replace a recording that is there");
  command->add_option("program", *program, "The program and its arguments, after --")->required();
  command->callback([config, program] {
    config->save = fs::absolute(config->save).lexically_normal().string();
    if (config->save.size() > 1 && config->save.back() == '/') config->save.pop_back();
    if (!config->overwrite && fs::exists(config->save) && !fs::is_empty(config->save)) {
      throw std::runtime_error(config->save + " is there already; --overwrite replaces a recording.");
    }
    config->process = ::getpid();  // exec keeps it
    become(*config, *program);
  });
}

}  // namespace torchtap::preload
