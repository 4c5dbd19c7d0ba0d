#pragma once

/// What ranks tell each other before states move, and what they conclude from it.

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/core/detail/packed_state.hpp>
#include <torchtap/distributed/options.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::distributed::detail {

/// A text without the stop at its end, to go on with "; " or ". ".
std::string without_stop(std::string text);

/// A module by its path, and by its number among those of the same path.
struct ModuleKey {
  std::string path;
  std::int64_t number = 0;

  friend bool operator<(const ModuleKey& a, const ModuleKey& b) {
    return a.path != b.path ? a.path < b.path : a.number < b.number;
  }
};

/// The keys of modules in this order.
std::vector<ModuleKey> keys_of(const std::vector<storage::EntryId>& ids);

/// What one rank says of one module.
struct ModuleFacts {
  storage::EntryId id;
  std::string reduction;                       ///< with its configuration; "" if samples are kept
  std::int64_t bytes = 0;                      ///< of the state
  std::vector<core::detail::StateFact> facts;  ///< of all slots, one after the other

  template <class Archive>
  void serialize(Archive& archive) {
    archive(id.path, id.aliases, id.type, id.kind, reduction, bytes, facts);
  }
};

/// What one rank says of itself.
struct Header {
  /// Raised whenever messages change.
  static constexpr std::uint32_t kProtocol = 2;

  bool present = false;  ///< whether it has a recorder
  std::uint32_t protocol = kProtocol;
  std::string library;    ///< its version of torchtap
  std::string refusal;    ///< why it cannot merge; "" if it can
  std::string kind;       ///< of its recorder, "ForwardOutput"
  std::string reduction;  ///< of modules without data
  /// Its options. `root` is -1 if it said nothing of them.
  std::int64_t root = -1, order = 0, everywhere = 0, same_modules = 0, samples = 0;
  std::vector<ModuleFacts> modules;

  std::string encoded() const;
  /// Throws nothing: what cannot be read is a refusal. Nothing at all is a rank without recorder that leaves
  /// the options to the others.
  static Header decoded(const std::string& text);
};

/// The modules of all ranks: those of rank 0 in its order, then those that rank 1 has besides, and so on.
std::vector<storage::EntryId> united(const std::vector<Header>& headers);

/// Why these ranks cannot merge, naming rank and module; "" if they can.
std::string why_not(const std::vector<Header>& headers);

/// What the root decides.
struct Verdict {
  std::string error;  ///< that all ranks throw; "" to go on
  bool lost = false;  ///< whether a rank is the reason, and not what it brought
  std::string more;

  /// The length of the error in eight bytes, the error, one byte for `lost`, and what else there is.
  std::string encoded() const;
  static Verdict decoded(const std::string& text);
};

}  // namespace torchtap::distributed::detail
