#pragma once

/// Makes reductions from text, as the command takes them, and lists them.

#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/any.hpp>
#include <torchtap/reductions/options.hpp>

namespace torchtap::reductions {

/// `ParseOptions().over({0})`: the rows, for all reductions of the text.
class TORCHTAP_API ParseOptions : public RowOptions<ParseOptions> {};

/// The reductions that `text` names: `parse("moments")`, `parse("mean,histogram:64:-4:4")`.
///
/// Names are separated by commas; arguments follow after colons, as `catalogue` lists them. Several
/// reductions become an `AnySeries`. Words apply reductions to parts of the stream:
/// `parse("by(labels:10, moments, count)")`, `where(NAME, …)`, `every(N, …)`, `window(N, …)`; `options` go to
/// the reductions inside. `joint(NAME, …)`, `cka(NAME)` and `cross_covariance(NAME)` take two tensors row by
/// row, also with `over_all`. Throws `c10::ValueError` that names the wrong part and the expectation.
TORCHTAP_API Any parse(const std::string& text, const ParseOptions& options = {});

/// A reduction of this library.
struct TORCHTAP_API CatalogueEntry {
  std::string name;     ///< of the class, "TopK"; recipes and recordings use it
  std::string usage;    ///< for `parse`: "top_k[:K]"
  std::string summary;  ///< half a line on its results
};

/// The reductions that `parse` and `restore` know.
TORCHTAP_API std::vector<CatalogueEntry> catalogue();

}  // namespace torchtap::reductions
