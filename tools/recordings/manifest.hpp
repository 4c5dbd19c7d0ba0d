#pragma once

#include <string>

#include "files/json.hpp"
#include "recordings.hpp"

/// Prints the manifest of a recording of samples as a table.
namespace torchtap::tools {

/// The output formats of `show`.
enum class Format { table, json, csv };

/// Prints why samples are missing, if it is known.
void print_note(const Layer& layer);

/// The manifest's entry of one module.
Json describe(const Layer& layer);

/// Prints one row per module to stdout. `path` is the recording's name in the document; `entry` is a module,
/// or "" for all.
void print_manifest(const Layers& layers, const std::string& path, const std::string& entry, Format format);

}  // namespace torchtap::tools
