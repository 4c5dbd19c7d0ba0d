// Writes the batches of the command's input options: one entry per batch, each the list of positional inputs.
// With --one-by-one, prints for each file why it is rejected.
#include <ATen/core/Tensor.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <iostream>
#include <utility>

#include <torchtap/storage/recording.hpp>

#include "models/inputs.hpp"

int main(int argc, char** argv) {
  using namespace torchtap;
  CLI::App app;
  tools::InputOptions options;
  tools::add_input_options(app, options);
  std::string save;
  bool one_by_one = false;
  app.add_option("--save", save);
  app.add_flag("--one-by-one", one_by_one);
  CLI11_PARSE(app, argc, argv);
  if (one_by_one) {
    for (const auto& file : std::exchange(options.files, {})) {
      try {
        options.files = {file};
        tools::Inputs inputs(options);
        while (inputs.next()) {
        }
        std::cout << "accepted\n";
      } catch (const c10::ValueError& error) {
        std::cout << error.what_without_backtrace() << '\n';
      }
    }
    return 0;
  }
  try {
    tools::Inputs inputs(options);
    std::vector<storage::Entry> entries;
    while (auto batch = inputs.next()) {
      storage::Entry entry;
      entry.path = std::to_string(entries.size());
      entry.samples = 1;
      entry.reduction = "Batch";  // one value, also if it is a list
      entry.value = core::Value(std::move(*batch));
      entries.push_back(entry);
    }
    TORCH_CHECK(static_cast<std::int64_t>(entries.size()) == inputs.count(), "count() says ", inputs.count(),
                " of ", entries.size(), " batches");
    storage::save(save, entries, storage::SaveOptions().mkdir(true).overwrite(true));
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return 2;
  }
  return 0;
}
