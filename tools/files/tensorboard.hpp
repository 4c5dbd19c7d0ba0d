#pragma once

#include <string>

#include <torchtap/storage/recording.hpp>
#include <torchtap/views/tensorboard/event_file.hpp>

#include "json.hpp"

namespace torchtap::tools {

/// Writes the results of an entry under the tag `name`: a histogram for each of its histograms, which are
/// summed over their kept elements, and a scalar for each single number. For `Blocks`, each block is a step,
/// with its histogram, mean, rms, std, min, max, share of zeros, NaN and infinities; of kept samples of one
/// element, each sample. Returns "tag", "kind" ("histogram" or "scalar") and "steps" of each tag that was
/// written. Nothing for an entry of other samples.
Json write_to_tensorboard(views::tensorboard::EventFile& file, const std::string& name,
                          const storage::RecordedEntry& entry);

}  // namespace torchtap::tools
