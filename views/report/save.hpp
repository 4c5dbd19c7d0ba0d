#pragma once

/// Measurements in files: JSON, which is read back; CSV; and a page for a browser.

#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report {

/// The results as a JSON document (RFC 8259) in the shape `{type: {"report": {…}, "info": {…}, "children":
/// {name: {"info": {…}, "children": {…}}}}}`. Units are in the names of fields (`first_seconds`,
/// `peak_bytes`); NaN and infinities are the texts "NaN", "Infinity" and "-Infinity".
TORCHTAP_API std::string json(const Measurements& results);
/// Reads the text of `json`. Throws `c10::ValueError`, which says where the document differs from a report.
TORCHTAP_API Measurements from_json(const std::string& text);

/// A table with a row for each module and the same fields as JSON, names joined by "." (RFC 4180).
TORCHTAP_API std::string csv(const Measurements& results);

/// A page that shows the tree as a table, sortable and collapsible, with bars for time and memory. It needs
/// no other file and no network.
TORCHTAP_API std::string html(const Measurements& results);

/// Writes the results to `path`; the extension names the format: .json, .csv or .html. An older file is
/// replaced in one step. Throws `c10::ValueError` for another extension or a missing folder, and `c10::Error`
/// if the file cannot be written; then an older file is as it was.
TORCHTAP_API void save(const Measurements& results, const std::string& path);
/// Throws as `save` would for the extension or a missing folder, for programs that save after a long run.
/// Writes nothing.
TORCHTAP_API void check_path(const std::string& path);
/// Reads a .json file that `save` wrote. Throws `c10::ValueError` if it is something else.
TORCHTAP_API Measurements load(const std::string& path);

}  // namespace torchtap::views::report
