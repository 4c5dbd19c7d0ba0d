#pragma once

#include <string>

#include "json.hpp"
#include "recordings.hpp"

/// The table of a recording of samples: what the manifest says.
namespace torchtap::tools {

/// How `show` prints.
enum class Format { table, json, csv };

/// What the manifest says of one module.
Json describe(const Layer& layer);

/// One row a module, to stdout. `path` is what the recording is called in the document; `entry` a module, or
/// "" for all.
void print_manifest(const Layers& layers, const std::string& path, const std::string& entry, Format format);

}  // namespace torchtap::tools
