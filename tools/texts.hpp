#pragma once

#include <string>
#include <torchtap/core/value.hpp>
#include <utility>
#include <vector>

#include "json.hpp"
#include "recordings.hpp"

/// What stands beside the tensors of a checkpoint: the name of an architecture, an epoch, a learning rate.
namespace torchtap::tools {

/// Every text in `value`, by a name as `results_of` gives them.
std::vector<std::pair<std::string, std::string>> texts_of(const core::Value& value);

/// Texts, and numbers at the top of a dict, of a single file, one "key: value" a line; nothing for
/// recordings.
void print_texts(const Layers& layers);
/// The same as an object.
Json texts_as_json(const Layers& layers);

}  // namespace torchtap::tools
