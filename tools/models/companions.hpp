#pragma once

#include <CLI/App.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/companion.hpp>

#include "inputs.hpp"

/// The tensors that --with names beside each batch.
namespace torchtap::tools {

/// Adds `--with`.
void add_companion_option(CLI::App& command, std::vector<std::string>& named);

/// The module that "expert=@router:1" or "class=argmax@/" names, by name; nothing for files and numbers.
/// Throws `c10::ValueError` without a name or a value, and for a slot that is no number.
std::optional<std::pair<std::string, recorders::Companion>> companion_of_module(
    const std::string& named, const std::vector<model::ModuleRef>& modules);

/// A tensor for each batch, by name.
class Companions {
 public:
  /// `named` has "labels=FILE", split as the inputs are, or "domain=2", one number for all batches. `needed`
  /// are the names that the reductions look up. Throws `c10::ValueError` if a name is missing, superfluous or
  /// given twice, or if a file has another number of batches; `option` begins the message.
  Companions(const std::vector<std::string>& named, const std::vector<std::string>& needed,
             const InputOptions& inputs, std::int64_t batches, const std::string& option = "--with");

  /// The names for the next batch.
  core::Context::Names next();

 private:
  struct One {
    std::string name, text;
    std::optional<Inputs> file;  // or a number
    at::Tensor number;
  };
  std::string option_;
  std::vector<One> all_;
};

}  // namespace torchtap::tools
