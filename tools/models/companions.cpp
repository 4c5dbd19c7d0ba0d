#include "companions.hpp"

#include <ATen/Functions.h>

#include <algorithm>

#include <torchtap/base/error.hpp>

namespace torchtap::tools {
namespace {

bool is_whole_number(const std::string& text) {
  const std::size_t from = text.rfind('-', 0) == 0 ? 1 : 0;
  return text.size() > from && text.size() < 19 &&
         text.find_first_not_of("0123456789", from) == std::string::npos;
}

/// "labels=FILE" as "labels" and "FILE".
std::pair<std::string, std::string> name_and_value(const std::string& named) {
  const auto equals = named.find('=');
  TORCH_CHECK_VALUE(equals != 0 && equals != std::string::npos && equals + 1 != named.size(), "--with ",
                    named, ": expected NAME=FILE, NAME=NUMBER or NAME=@PATH, such as labels=labels.npy.");
  return {named.substr(0, equals), named.substr(equals + 1)};
}

}  // namespace

void add_companion_option(CLI::App& command, std::vector<std::string>& named) {
  command
      .add_option(
          "--with", named,
          "Name a tensor for by(), where(), joint(), cka() of --reduce: NAME=FILE, split as --input is, "
          "NAME=NUMBER, or NAME=@PATH[:SLOT], an output of the module at a path relative to the "
          "recorded one (./router, ../norm, / is the root); argmax@PATH: the place of its largest "
          "number in each row")
      ->type_name("NAME=FILE");
}

std::optional<std::pair<std::string, recorders::Companion>> companion_of_module(
    const std::string& named, const std::vector<model::ModuleRef>& modules) {
  auto [name, value] = name_and_value(named);
  const bool largest = value.rfind("argmax@", 0) == 0;
  if (!largest && value.rfind('@', 0) != 0) return std::nullopt;
  value = value.substr(value.find('@') + 1);
  std::int64_t slot = 0;
  if (const auto colon = value.rfind(':'); colon != std::string::npos) {
    TORCH_CHECK_VALUE(is_whole_number(value.substr(colon + 1)), "--with ", named, ": \"",
                      value.substr(colon + 1), "\" is not a slot; expected NAME=@PATH:NUMBER.");
    slot = std::stoll(value.substr(colon + 1));
    value.resize(colon);
  }
  auto companion = recorders::output(modules, value, slot);
  if (largest) companion = companion.map([](const at::Tensor& x) { return x.argmax(-1); });
  return std::pair(std::move(name), std::move(companion));
}

Companions::Companions(const std::vector<std::string>& named, const std::vector<std::string>& needed,
                       const InputOptions& inputs, std::int64_t batches, const std::string& option)
    : option_(option) {
  for (const auto& text : named) {
    auto [name, value] = name_and_value(text);
    One one{std::move(name), text, std::nullopt, {}};
    TORCH_CHECK_VALUE(
        std::none_of(all_.begin(), all_.end(), [&](const One& other) { return other.name == one.name; }),
        option_, " ", text, ": \"", one.name, "\" was given before; give each name once.");
    TORCH_CHECK_VALUE(std::find(needed.begin(), needed.end(), one.name) != needed.end(), "--with ", text,
                      ": --reduce does not use \"", one.name, "\"; it uses ", base::quoted(needed),
                      ". Write by(", one.name, ", …) or where(", one.name, ", …), or leave it out.");
    if (is_whole_number(value)) {
      one.number = at::scalar_tensor(std::int64_t{std::stoll(value)}, at::kLong);
    } else {
      InputOptions file;
      file.files = {value};
      file.batch = inputs.batch;
      file.batches = inputs.batches;
      one.file.emplace(std::move(file));
      TORCH_CHECK_VALUE(one.file->count() == batches, option_, " ", text, ": the file has ",
                        one.file->count(), " batches, the inputs have ", batches,
                        "; it needs a row for each of theirs, and --batch splits both.");
    }
    all_.push_back(std::move(one));
  }
  for (const auto& name : needed) {
    TORCH_CHECK_VALUE(std::any_of(all_.begin(), all_.end(), [&](const One& one) { return one.name == name; }),
                      "--reduce uses \"", name, "\"; name its tensor: --with ", name, "=FILE.");
  }
}

core::Context::Names Companions::next() {
  core::Context::Names names;
  for (One& one : all_) {
    if (!one.file) {
      names.emplace_back(one.name, one.number);
      continue;
    }
    const auto batch = one.file->next();
    TORCH_CHECK_VALUE(batch && batch->size() == 1 && batch->front().is_tensor(), "--with ", one.text,
                      ": expected one tensor for each batch.");
    names.emplace_back(one.name, batch->front().tensor());
  }
  return names;
}

}  // namespace torchtap::tools
