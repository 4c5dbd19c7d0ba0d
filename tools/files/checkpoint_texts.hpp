#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torchtap/core/value.hpp>

#include "json.hpp"
#include "recordings/recordings.hpp"

/// Texts stored beside the tensors of a checkpoint: the name of an architecture, an epoch, a learning rate.
namespace torchtap::tools {

/// Every text in `value`, named as by `results_of`.
std::vector<std::pair<std::string, std::string>> texts_of(const core::Value& value);

/// Prints the texts of a single file, and numbers at the top of its dict, one "key: value" per line; nothing
/// for recordings.
void print_texts(const Layers& layers);
/// The same texts and numbers as an object.
Json texts_as_json(const Layers& layers);

}  // namespace torchtap::tools
