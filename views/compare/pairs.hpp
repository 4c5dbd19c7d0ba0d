#pragma once

/// Pairs the calls and weights of two runs, whatever their names are.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/compare/run.hpp>

namespace torchtap::views::compare {

/// The reason why two calls are taken for the same module's.
enum class How : std::uint8_t { none, map, path, values, parent };

/// Two weights: indexes of records, `kNone` on the side that lacks it.
struct WeightPair {
  std::uint32_t a = kNone, b = kNone;  ///< indexes of records
};

/// The pairs of two runs.
struct TORCHTAP_API Pairs {
  /// For each call of A its call of B, or `kNone`; and the other way round.
  std::vector<std::uint32_t> of_a, of_b;
  /// For each call of A, how it was found.
  std::vector<How> how;
  /// In the order of A; weights that A lacks are at the end.
  std::vector<WeightPair> weights;
  /// The renames that were found, as `map` takes them: "layer1.*=stage1.*".
  std::vector<std::string> map;

  /// How many calls were found by this.
  std::int64_t count(How by) const;
};

/// Pairs the calls of each thread: by `map` ("layer1.*=stage1.*": `*` stands for the same text on both sides,
/// and "layer1.*" names layer1, too), by path, then by values, shapes, types and order (Needleman and Wunsch
/// 1970) between paired calls, then the calls around them. If one side lacks an entry of a `Sequential`, the
/// numbers of the entries behind it shift. So an entry whose name has another type on the other side, and the
/// entries beside it, are paired by values, not by names. Weights follow their modules, then go by their
/// values in this or another order, then by shape.
///
/// Throws `c10::ValueError` if an entry is no map, or if it names a module that is not there.
TORCHTAP_API Pairs pair_up(const Run& a, const Run& b, const std::vector<std::string>& map = {});

}  // namespace torchtap::views::compare
