#pragma once

/// Writes one file of each format. `tests/formats/1/` has those of format 1.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/core/not_recorded.hpp>
#include <torchtap/core/sink.hpp>

namespace formats {

/// Sample i of five, [2, 3] float32: 6i … 6i + 5, negative for odd i.
std::vector<at::Tensor> samples();
/// Folds these samples in, with a "label" and a "mask" for the two rows of each.
void update(torchtap::core::Sink& sink);

/// A reduction that can be saved, and the name of its entry.
struct Catalogued {
  std::string name;
  std::unique_ptr<torchtap::core::Sink> sink;
};
/// Those of `reduced/`, without samples, by their recipes and options.
std::vector<Catalogued> catalogue();
/// Those that came later, of `added/`.
std::vector<Catalogued> added();

/// What is missing in `counted/`, in `counted_unfinished/` and, but for the text, in `counted.snapshot`.
torchtap::core::NotRecorded missing();

/// The results of a reduction, as files hold them.
torchtap::core::Value results(const torchtap::core::Sink& sink);

/// Writes one file of every kind, and the state of every reduction, to an existing folder.
void write_fixtures(const std::string& folder);

/// Restores a snapshot of `write_fixtures` into a new recorder, and returns its value. With `one_more`, it
/// records all samples a second time first.
torchtap::core::Value restored(const std::string& file, bool reduced, bool one_more);
/// How many events of `counted.snapshot` were left out, and why.
std::pair<std::int64_t, std::string> restored_left_out(const std::string& file);

}  // namespace formats
