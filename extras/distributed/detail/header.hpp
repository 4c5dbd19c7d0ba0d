#pragma once

/// The headers that ranks exchange before states move, and the verdict on them.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/distributed/detail/packed_state.hpp>
#include <torchtap/distributed/options.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::distributed::detail {

/// A text without its final full stop, so that "; " or ". " can follow.
std::string without_stop(std::string text);

/// A module by its path, and by its number among modules of the same path.
struct ModuleKey {
  std::string path;
  std::int64_t number = 0;

  friend bool operator<(const ModuleKey& a, const ModuleKey& b) {
    return a.path != b.path ? a.path < b.path : a.number < b.number;
  }
};

/// The keys of these modules, in the same order.
std::vector<ModuleKey> keys_of(const std::vector<storage::EntryId>& ids);

/// One rank's facts about one module.
struct ModuleFacts {
  storage::EntryId id;
  std::string reduction;                       ///< with its configuration; "" if samples are kept
  std::int64_t bytes = 0;                      ///< of the state
  std::vector<core::extend::StateFact> facts;  ///< of all slots, one after the other
  bool divisible = false;                      ///< whether its elements can be merged in parts
  std::vector<std::int64_t> whole;             ///< the sizes of its elements; empty if it has none yet
  std::int64_t bytes_of_elements = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(id.path, id.aliases, id.type, id.kind, reduction, bytes, facts, divisible, whole,
            bytes_of_elements);
  }
};

/// One rank's facts about itself.
struct Header {
  /// Raised whenever messages change.
  static constexpr std::uint32_t kProtocol = 6;

  bool present = false;  ///< whether it has a recorder
  std::uint32_t protocol = kProtocol;
  std::string library;    ///< its version of torchtap
  std::string refusal;    ///< why it cannot merge; "" if it can
  std::string kind;       ///< of its recorder, "ForwardOutput"
  std::string reduction;  ///< of modules without data
  /// Its options. `root` is -1 if it sent none.
  std::int64_t root = -1, order = 0, everywhere = 0, same_modules = 0, samples = 0;
  std::vector<ModuleFacts> modules;

  std::string encoded() const;
  /// Throws nothing: an unreadable text becomes a refusal. An empty text is a rank without a recorder and
  /// without options.
  static Header decoded(const std::string& text);
};

/// The modules of all ranks: rank 0's in its order, then further modules of rank 1, and so on.
std::vector<storage::EntryId> united(const std::vector<Header>& headers);

/// Why these ranks cannot merge, naming rank and module; "" if they can.
std::string why_not(const std::vector<Header>& headers);

/// The root's decision.
struct Verdict {
  std::string error;  ///< all ranks throw it; "" to continue
  bool lost = false;  ///< whether the reason is a lost rank, not its data
  std::string more;

  /// The length of the error in eight bytes, the error, one byte for `lost`, then `more`.
  std::string encoded() const;
  static Verdict decoded(const std::string& text);
};

}  // namespace torchtap::distributed::detail
