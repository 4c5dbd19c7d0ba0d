// Compares the headers of ranks.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/distributed/detail/header.hpp>
#include <torchtap/version.hpp>

namespace torchtap::distributed::detail {
namespace {

using core::extend::StateFact;

/// `"layer1"`, or `"layer1" (number 1 of that path, from 0)` if several modules have it.
std::string named(const ModuleKey& key) {
  const std::string path = "\"" + key.path + "\"";
  return key.number == 0 ? path : c10::str(path, " (number ", key.number, " of that path, from 0)");
}

bool has_recorder(const Header& header) {
  return header.present;
}
bool has_options(const Header& header) {
  return header.root >= 0;
}

/// Compares one value of all ranks that have it with the first such rank's.
template <class Of>
std::string differs(const std::vector<Header>& headers, const char* what, const Of& of,
                    bool (*has)(const Header&) = has_recorder) {
  const Header* first = nullptr;
  for (const Header& header : headers) {
    if (!has(header)) continue;
    if (first == nullptr) first = &header;
    if (of(header) == of(*first)) continue;
    return c10::str("rank ", &header - headers.data(), " has the ", what, " ", of(header), ", and rank ",
                    first - headers.data(), " has ", of(*first), "; give the same on all ranks");
  }
  return "";
}

std::string options_differ(const std::vector<Header>& headers) {
  const std::pair<const char*, std::int64_t Header::*> all[] = {
      {"option root", &Header::root},
      {"option order", &Header::order},
      {"option everywhere", &Header::everywhere},
      {"option same_modules", &Header::same_modules},
      {"option samples", &Header::samples}};
  for (const auto& [what, member] : all) {
    std::string why = differs(
        headers, what, [member = member](const Header& header) { return header.*member; }, has_options);
    if (!why.empty()) return why;
  }
  return "";
}

/// One rank's facts about a module.
struct Said {
  std::size_t rank;
  const ModuleFacts* facts;
};

std::string facts_differ(const ModuleKey& key, const Said& first, const Said& other) {
  const auto& mine = first.facts->facts;
  const auto& theirs = other.facts->facts;
  // Ranks may have seen different numbers of slots; each slot has the same number of facts.
  for (std::size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
    const StateFact &a = mine[i], &b = theirs[i];
    if (a.what != b.what || a.version != b.version) {
      return c10::str("rank ", other.rank, " has for ", named(key), " version ", b.version,
                      " of the state of ", b.what, ", and rank ", first.rank, " version ", a.version, " of ",
                      a.what, "; run the same version of torchtap on all ranks");
    }
    if (a.shaped && b.shaped && a.shape != b.shape) {
      return c10::str(
          "rank ", other.rank, " has for ", named(key), " the rows of shape ", c10::IntArrayRef(b.shape),
          " in ", b.what, ", and rank ", first.rank, " has ", c10::IntArrayRef(a.shape),
          "; only samples of one shape can be merged, or fold the dimensions that differ (over, over_all)");
    }
  }
  return "";
}

using AllSaid = std::map<ModuleKey, std::vector<Said>>;

/// The facts of all ranks about each module, in the order of ranks.
AllSaid said_of(const std::vector<Header>& headers) {
  AllSaid all;
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    std::vector<storage::EntryId> ids;
    for (const auto& module : headers[rank].modules) ids.push_back(module.id);
    const auto keys = keys_of(ids);
    for (std::size_t i = 0; i < keys.size(); ++i) all[keys[i]].push_back({rank, &headers[rank].modules[i]});
  }
  return all;
}

std::string recorded_differently(const ModuleKey& key, const Said& first, const Said& other) {
  const auto says = [&](const std::string& theirs, const std::string& mine, const char* wanted) {
    return c10::str("rank ", other.rank, " has for ", named(key), " ", theirs, ", and rank ", first.rank,
                    " has ", mine, "; all ranks have to record ", wanted);
  };
  const std::string &kind = other.facts->id.kind, &first_kind = first.facts->id.kind;
  if (kind != first_kind) return says("the kind " + kind, first_kind, "the same kind");
  const auto text = [](const std::string& reduction) {
    return reduction.empty() ? "no reduction" : reduction;
  };
  const std::string &reduction = other.facts->reduction, &first_reduction = first.facts->reduction;
  if (reduction == first_reduction) return "";
  return says(text(reduction), text(first_reduction), "with the same reduction, configured alike");
}

std::string modules_differ(const AllSaid& all) {
  for (const auto& [key, said] : all) {
    // A rank without samples has no shape, so each rank is compared with its predecessors up to one with a
    // shape.
    for (std::size_t i = 1; i < said.size(); ++i) {
      std::string why = recorded_differently(key, said[0], said[i]);
      for (std::size_t j = 0; why.empty() && j < i; ++j) {
        why = facts_differ(key, said[j], said[i]);
        const bool shaped = std::any_of(said[j].facts->facts.begin(), said[j].facts->facts.end(),
                                        [](const StateFact& fact) { return fact.shaped; });
        if (shaped) break;  // ranks after j agree with it
      }
      if (!why.empty()) return why;
    }
  }
  return "";
}

/// The first module that a rank lacks although the option same_modules is set.
std::string module_missing(const std::vector<Header>& headers, const AllSaid& all) {
  const bool strict = std::any_of(headers.begin(), headers.end(), [](const Header& header) {
    return header.present && header.same_modules != 0;
  });
  if (!strict) return "";
  for (const auto& [key, said] : all) {
    for (std::size_t rank = 0; rank < headers.size(); ++rank) {
      const auto has = [rank](const Said& one) { return one.rank == rank; };
      if (!headers[rank].present || std::any_of(said.begin(), said.end(), has)) continue;
      return c10::str("rank ", rank, " records no module ", named(key), ", and rank ", said[0].rank,
                      " does; leave out the option same_modules to get the modules of all ranks");
    }
  }
  return "";
}

std::string kept_too_much(const std::vector<Header>& headers) {
  std::int64_t bytes = 0, limit = 0;
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    limit = std::max(limit, headers[rank].samples);
    for (const auto& module : headers[rank].modules) {
      if (!module.reduction.empty()) continue;
      bytes += module.bytes;
      if (headers[rank].samples == 0) {
        return c10::str(
            "rank ", rank, " keeps every sample of \"", module.id.path,
            "\"; reduce them, allow samples with the option samples(bytes), or save() on each rank "
            "and join the recordings with `torchtap merge`");
      }
    }
  }
  if (bytes <= limit) return "";
  return c10::str("the kept samples of all ranks take ", bytes, " bytes, and the option samples allows ",
                  limit,
                  "; allow more, or save() on each rank and join the recordings with `torchtap merge`");
}

}  // namespace

std::string without_stop(std::string text) {
  while (!text.empty() && (text.back() == '.' || text.back() == ' ' || text.back() == '\n')) text.pop_back();
  return text;
}

std::vector<ModuleKey> keys_of(const std::vector<storage::EntryId>& ids) {
  std::map<std::string, std::int64_t> seen;
  std::vector<ModuleKey> keys;
  keys.reserve(ids.size());
  for (const auto& id : ids) keys.push_back({id.path, seen[id.path]++});
  return keys;
}

std::string Header::encoded() const {
  std::ostringstream stream;
  {
    core::OutputArchive archive(stream);
    archive(protocol, library, present, refusal, kind, reduction, root, order, everywhere, same_modules,
            samples, modules);
  }
  return stream.str();
}

Header Header::decoded(const std::string& text) {
  Header header;
  if (text.empty()) return header;
  try {
    std::istringstream stream(text);
    core::InputArchive archive(stream);
    archive(header.protocol, header.library);
    if (header.protocol != kProtocol) {
      header.refusal = c10::str("it runs torchtap ", header.library, " with protocol ", header.protocol,
                                ", and rank 0 runs ", TORCHTAP_VERSION, " with protocol ", kProtocol,
                                "; run the same version on all ranks");
      return header;
    }
    archive(header.present, header.refusal, header.kind, header.reduction, header.root, header.order,
            header.everywhere, header.same_modules, header.samples, header.modules);
  } catch (const std::exception&) {
    header.refusal =
        "its header cannot be read: it does not run torchtap, or other traffic came between; give torchtap a "
        "separate group";
    header.modules.clear();
  }
  return header;
}

std::vector<storage::EntryId> united(const std::vector<Header>& headers) {
  std::vector<storage::EntryId> all;
  std::set<ModuleKey> seen;
  for (const Header& header : headers) {
    std::vector<storage::EntryId> ids;
    for (const auto& module : header.modules) ids.push_back(module.id);
    const auto keys = keys_of(ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (seen.insert(keys[i]).second) all.push_back(ids[i]);
    }
  }
  return all;
}

std::string why_not(const std::vector<Header>& headers) {
  std::string refusals;
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    if (headers[rank].refusal.empty()) continue;
    refusals +=
        c10::str(refusals.empty() ? "" : "; ", "rank ", rank, ": ", without_stop(headers[rank].refusal));
  }
  if (!refusals.empty()) return refusals;
  std::string why = options_differ(headers);
  if (!why.empty()) return why;
  const auto any = std::find_if(headers.begin(), headers.end(), has_recorder);
  if (any == headers.end()) return "";
  const auto root = static_cast<std::size_t>(any->root);
  const Header& chief = headers.at(root);
  if (!chief.present) {
    return c10::str("rank ", root,
                    " merges and has no recorder; set the option root(rank) to a rank with a recorder");
  }
  if (chief.order == static_cast<std::int64_t>(Order::tree)) {
    for (std::size_t rank = 0; rank < headers.size(); ++rank) {
      if (!headers[rank].present) {
        why = c10::str("rank ", rank,
                       " has no recorder, and Order::tree needs one on every rank; use Order::ranks");
      }
    }
  }
  const AllSaid all = said_of(headers);
  if (why.empty()) why = modules_differ(all);
  // Recorders without a common module are compared here.
  if (why.empty()) why = differs(headers, "kind", [](const Header& header) { return header.kind; });
  if (why.empty()) {
    why = differs(headers, "reduction",
                  [](const Header& header) { return header.reduction.empty() ? "none" : header.reduction; });
  }
  if (why.empty()) why = module_missing(headers, all);
  if (why.empty()) why = kept_too_much(headers);
  return why;
}

std::string Verdict::encoded() const {
  std::string text;
  base::put_number(text, static_cast<std::uint64_t>(error.size()));
  return text + error + (lost ? '\1' : '\0') + more;
}

Verdict Verdict::decoded(const std::string& text) {
  Verdict verdict;
  const std::uint64_t length = text.size() < 9 ? 0 : base::get_number<std::uint64_t>(text.data());
  if (text.size() < 9 || length > text.size() - 9) {
    verdict.error =
        "the root's decision cannot be read: other traffic came between; give torchtap a separate group";
    return verdict;
  }
  const auto size = static_cast<std::size_t>(length);
  verdict.error = text.substr(8, size);
  verdict.lost = text[8 + size] != 0;
  verdict.more = text.substr(9 + size);
  return verdict;
}

}  // namespace torchtap::distributed::detail
