#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/compare/difference.hpp>

#include "commands.hpp"
#include "compare/traces.hpp"
#include "compare_prints.hpp"
#include "comparison_table.hpp"
#include "files/files.hpp"
#include "module_pairs.hpp"
#include "movement.hpp"
#include "movement_table.hpp"
#include "options/option_checks.hpp"
#include "recordings/large_results.hpp"
#include "recordings/recordings.hpp"
#include "recordings/statistics.hpp"
#include "terminal/progress.hpp"

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kDistance[] = "0.1";  // of statistics

constexpr char kCompareExamples[] = R"(
Says what differs first between two runs of a model, two recordings, or two files of tensors.

Prints (python3 -m torchtap_compare --to FILE, torchtap preload --fingerprint FILE), pipes of them, and with --run two
programs are compared weight by weight, input by input, and call by call; the first that differs by more than rounding
is named, if possible with its cause.

Recordings and files are compared module by module, or tensor by tensor. A side is a recording; a .pt, .npy or
.safetensors file; or a folder of such files, NAME.npy for the module or tensor called NAME, root.npy for the root.
Modules are matched by path or alias, the tensors of a state_dict or a .safetensors file by name, and two single
tensors regardless of the names of their files.

Recordings of samples are compared number by number, the i-th sample with the i-th. Two numbers agree if
|a - b| <= atol + rtol * |b|, or if both are NaN, as in torch.allclose; two whole numbers if |a - b| <= atol, so that
only --atol 1 or more lets them differ. Texts, None and what else a file holds are compared, too. "max rel" is the
largest |a - b| / |b|, "cosine" the cosine of the angle between all values of A and all values of B. The first
difference is the first in the order of A, or of B if only B is a recording, except that a module comes after its
submodules (before them in recordings of inputs), and that the first calls of all modules in a forward come before the
second ones. The order of files is by name.

Recordings of statistics (of other data, another training step, another release) are compared as distributions, and
the module that moved most comes first. The number of samples may differ. A module's distance is the largest of
  |shift|        of the mean, in standard deviations of A
  |ln ratio|     of the standard deviations
  W1             the Wasserstein-1 distance of the histograms, in standard
                 deviations of A, or in the unit of the values if that is
                 unknown. The edges may differ; values are assumed to be
                 spread evenly over their bin, and values outside the range
                 to be at the outermost edge. W1 is shown but does not count
                 if A's deviation is less than a bin, or if the edges differ
                 and W1 is less than a bin
  |zeros|        the change of the fraction of zeros
and, without moments and histogram, also the largest relative change of the other results. For elementwise results
each is that of the element that moved most. Where A has blocks (record … --learn), two modules agree if B
has not drifted, as torchtap check B --against A says; elsewhere, or with --tolerance, if their distance is at most
0.1. They do not agree if only one side has NaN or infinities. With --rtol or --atol statistics too are compared number
by number.

Two traces (torchtap trace --save) are compared operation by operation, in the order in which they ran. Where the
programs differ, what both ran before and after that is compared, and the rest is named. Of tensors that one side did
not keep, shape and dtype are compared, and the exit status is 3.

Examples:
  torchtap compare original.prints port.prints
  torchtap compare --run 'python3 original.py' --run './port'
  torchtap compare weights.pt model.safetensors             # which weight differs
  torchtap compare monday/ tuesday/ --rtol 0 --atol 0       # bit by bit
  torchtap compare original/ port/ --json | jq -r .first
  torchtap compare before/ after/                           # two traces
  torchtap compare stats-train/ stats-test/                 # from: record … --reduce moments,histogram:64:-4:4,count
  torchtap compare learned/ tonight/                        # from: record … --learn: what drifted
  torchtap compare stats-v1/ stats-v2/ --tolerance 0.02 --csv > moved.csv

Exit status: 0 if all was compared and agrees within the tolerance; 1 if something does not, or a module has samples on
one side only; 2 if something cannot be read; 3 if nothing that was compared differs but something was not compared
(objects in a file that are no tensors, tensors that a trace did not keep), which is said first. A module without
samples on both sides, or that one side lacks, agrees.)";

struct CompareAsked {
  std::string a, b;
  PrintsOptions prints;  // sides is filled in
  Tolerance values;
  bool csv = false;
};

/// Compares two lists of samples, equal shapes together: a call of LibTorch for each of a million small
/// samples would take minutes.
class Samples {
 public:
  Samples(const std::string& name, const Tolerance& tolerance, Comparison& result)
      : name_(name), tolerance_(tolerance), result_(result) {}

  void compare(const Result& a, const Result& b) {
    TensorReader of_a(a), of_b(b);
    const at::Tensor* mine = of_a.next();
    const at::Tensor* theirs = of_b.next();
    std::int64_t both = 0;
    for (; mine != nullptr && theirs != nullptr; mine = of_a.next(), theirs = of_b.next(), ++both) {
      add(*mine, *theirs);
    }
    flush();
    if (mine == nullptr && theirs == nullptr) return;
    std::int64_t size_a = both, size_b = both;
    for (; mine != nullptr; mine = of_a.next()) ++size_a;
    for (; theirs != nullptr; theirs = of_b.next()) ++size_b;
    result_.fail("samples differ in number", c10::str(size_a, " in A and ", size_b, " in B"), both);
  }

 private:
  static bool like(const at::Tensor& one, const at::Tensor& other) {
    return one.defined() && other.defined() && one.sizes() == other.sizes() &&
           one.scalar_type() == other.scalar_type();
  }

  void add(const at::Tensor& a, const at::Tensor& b) {
    constexpr std::int64_t kSmall = 4096, kElements = std::int64_t{1} << 20;
    if (!a_.empty() && (!like(a, a_.front()) || !like(b, b_.front()) ||
                        a.numel() * static_cast<std::int64_t>(a_.size()) > kElements))
      flush();
    a_.push_back(a);
    b_.push_back(b);
    const bool together = a.defined() && b.defined() && a.sizes() == b.sizes() && a.numel() <= kSmall;
    if (!together) flush();
  }

  void flush() {
    if (a_.size() > 1) {
      Comparison all = result_;
      tools::compare(at::stack(a_), at::stack(b_), "", 0, tolerance_, all);
      if (!all.differs() || result_.differs()) {  // otherwise, one by one, to say which is the first
        result_ = all;
        first_ += static_cast<std::int64_t>(a_.size());
        a_.clear();
        b_.clear();
      }
    }
    for (std::size_t i = 0; i < a_.size(); ++i, ++first_) {
      const std::string where = (name_.empty() ? "sample " : name_ + ", sample ") + std::to_string(first_);
      tools::compare(a_[i], b_[i], where, first_, tolerance_, result_);
    }
    a_.clear();
    b_.clear();
  }

  const std::string& name_;
  const Tolerance tolerance_;
  Comparison& result_;
  std::int64_t first_ = 0;  // the first waiting sample
  std::vector<at::Tensor> a_, b_;
};

/// A text as Python writes it, or what else a value is.
std::string in_words(const core::Value& value) {
  if (value.is_text()) return "'" + value.text() + "'";
  return value.is_none() ? "None" : value.is_list() ? "[]" : "{}";
}

/// Compares what is no tensor.
void compare_others(const core::Value& a, const core::Value& b, Comparison& result) {
  const auto of_a = others_of(a), of_b = others_of(b);
  std::multimap<std::string, const OtherValue*> only_b;
  for (const OtherValue& its : of_b) only_b.emplace(its.name, &its);
  for (const OtherValue& mine : of_a) {
    const auto found = only_b.lower_bound(mine.name);
    if (found == only_b.end() || found->first != mine.name) {
      result.fail("not the same results", mine.name);
      continue;
    }
    const OtherValue* const its = found->second;
    only_b.erase(found);
    if (mine.value != its->value) {
      const auto [one, other] = views::compare::excerpts(in_words(mine.value), in_words(its->value));
      result.fail("different", (mine.name.empty() ? "" : mine.name + ": ") + one + " and " + other);
    } else if (mine.unreadable) {
      result.leave_out(mine.value.text());
    } else {
      result.agree();
    }
  }
  if (!only_b.empty()) result.fail("not the same results", only_b.begin()->first);
}

Comparison compare(const Layer& a, const Layer& b, const Tolerance& tolerance) {
  Comparison result;
  const bool spooled = !a.entry.shards().empty() || !b.entry.shards().empty();  // which are tensors alone
  const core::Value value_a = spooled ? core::Value() : a.entry.value();
  const core::Value value_b = spooled ? core::Value() : b.entry.value();
  const auto of_a = spooled ? results_on_disk(a.entry) : results_of(value_a);
  const auto of_b = spooled ? results_on_disk(b.entry) : results_of(value_b);
  result.samples = a.entry.samples();
  // Files do not declare a kind.
  if (!a.entry.kind().empty() && !b.entry.kind().empty() && a.entry.kind() != b.entry.kind()) {
    result.fail("not of the same kind", a.entry.kind() + " and " + b.entry.kind());
  }
  if (of_a.empty() != of_b.empty()) {
    result.fail(of_a.empty() ? "no samples in A" : "no samples in B", "");
  }
  for (const auto& mine : of_a) {
    const auto theirs =
        std::find_if(of_b.begin(), of_b.end(), [&](const Result& other) { return other.name == mine.name; });
    if (theirs == of_b.end() || theirs->list != mine.list) {
      if (!of_b.empty()) result.fail("not the same results", mine.name);
      continue;
    }
    if (mine.list) {
      Samples(mine.name, tolerance, result).compare(mine, *theirs);
    } else {
      compare(mine.tensors.front(), theirs->tensors.front(), mine.name, 0, tolerance, result);
    }
  }
  if (of_b.size() > of_a.size() && !of_a.empty()) result.fail("not the same results", "B has more");
  if (!spooled) compare_others(value_a, value_b, result);
  return result;
}

std::vector<Compared> compare_all(const std::vector<Pair>& pairs, const Tolerance& tolerance) {
  std::vector<Compared> rows;
  Progress progress("comparing", static_cast<std::int64_t>(pairs.size()));
  for (const Pair& pair : pairs) {
    const Layer& layer = pair.either();
    const std::string& type = layer.entry.type();
    Comparison comparison;
    if (!pair.ran()) {
      comparison.status = kNotRun;
    } else if (pair.a == nullptr || pair.b == nullptr) {
      comparison.fail(pair.b == nullptr ? "missing in B" : "missing in A", "");
    } else {
      comparison = compare(*pair.a, *pair.b, tolerance);
    }
    rows.push_back({layer.path,
                    type.empty() ? "-" : type,
                    layer.path,
                    {{"path", layer.path}, {"type", type}},
                    std::move(comparison)});
    progress.advance();
  }
  return rows;
}

/// The row whose difference appears first, by the forward, then by the call; null if there is none.
const Compared* first_difference(const std::vector<Compared>& rows) {
  std::int64_t forwards = 0;
  for (const auto& row : rows) {
    const std::int64_t samples = row.comparison.samples;
    if (samples > 0 && (forwards == 0 || samples < forwards)) forwards = samples;
  }
  const auto rank = [&](const Comparison& comparison) -> std::pair<std::int64_t, std::int64_t> {
    if (comparison.status == "missing in A") return {INT64_MAX, 0};
    const bool even = comparison.samples > 0 && comparison.samples % forwards == 0;
    const std::int64_t calls = even ? comparison.samples / forwards : 1;
    return {comparison.at / calls, comparison.at % calls};
  };
  const Compared* first = nullptr;
  for (const auto& row : rows) {
    if (!row.comparison.differs()) continue;
    if (first == nullptr || rank(row.comparison) < rank(first->comparison)) first = &row;
  }
  return first;
}

/// If two checkpoints share only names like "epoch", takes away the prefixes by which the other names differ:
/// "state_dict." of one, nothing or "model.module." of the other.
void share_names(Layers& a, Layers& b) {
  const auto each_end = [](const std::string& path, const auto& visit) {
    for (std::size_t at = 0; at <= path.size();) {
      visit(path.substr(0, at), path.substr(at));
      at = std::min(path.find('.', at), path.size()) + 1;
    }
  };
  std::map<std::string, std::vector<std::string>> fronts_in_b;  // of each end of a name
  for (const auto& layer : b.all) {
    each_end(layer.path, [&](std::string front, const std::string& end) {
      fronts_in_b[end].push_back(std::move(front));
    });
  }
  constexpr std::size_t kMost = 8;  // ends like "weight" stand behind many different prefixes
  std::map<std::pair<std::string, std::string>, std::size_t> shared;  // ends behind what is in front in A, B
  for (const auto& layer : a.all) {
    const auto& same = fronts_in_b[layer.path];
    const bool nested = layer.path.find('.') != std::string::npos;
    if (nested && std::find(same.begin(), same.end(), "") != same.end()) return;
    each_end(layer.path, [&](const std::string& front, const std::string& end) {
      const auto& others = fronts_in_b[end];
      if (others.size() > kMost) return;
      for (const auto& other : others) ++shared[{front, other}];
    });
  }
  const auto best = std::max_element(shared.begin(), shared.end(), [](const auto& x, const auto& y) {
    const auto rank = [](const auto& one) {
      return std::pair(one.second, -std::int64_t(one.first.first.size() + one.first.second.size()));
    };
    return rank(x) < rank(y);
  });
  if (best == shared.end() || 2 * best->second < std::min(a.all.size(), b.all.size())) return;
  for (auto [layers, front] : {std::pair(&a, best->first.first), std::pair(&b, best->first.second)}) {
    for (auto& layer : layers->all) {
      if (layer.path.rfind(front, 0) == 0) layer.path.erase(0, front.size());
    }
  }
}

/// Compares number by number. Returns the exit status.
int compare_values(const Layers& a, const Layers& b, const CompareOptions& options) {
  Layers of_a = by_name(a, /*with_others=*/true), of_b = by_name(b, /*with_others=*/true);
  if (a.is_file() && b.is_file() && !of_a.is_file() && !of_b.is_file()) share_names(of_a, of_b);
  const auto rows = compare_all(pair_up(of_a, of_b), options.tolerance);
  const Compared* first = first_difference(rows);
  const bool others = a.is_file() && !others_of(a.all.front().entry.value()).empty();
  using Align = Table::Align;
  return print_compared(rows, first, options,
                        {{"path", Align::left, Table::kAlways, 20, true}, {"type", Align::left, 40, 8}},
                        !a.is_file() && !b.is_file() ? "module"
                        : others                     ? "value"
                                                     : "tensor");
}

/// Compares distributions: where both have blocks, as `torchtap check B --against A`, unless a tolerance was
/// asked for. Returns whether all agree.
bool compare_statistics(const Layers& a, const Layers& b, MovementOptions options, bool by_distance) {
  const bool blocks =
      a.recorded && b.recorded && std::any_of(a.all.begin(), a.all.end(), [](const Layer& layer) {
        return layer.entry.reduction().rfind("Blocks(", 0) == 0 && layer.entry.samples() > 0;
      });
  DriftVerdict drift;
  if (blocks && by_distance) {
    drift.not_judged = {"--tolerance sets the blocks of A aside, which would tell what chance gives."};
  } else if (blocks) {
    drift = judge_drift(options.b, options.a, rules::Rules());
  }
  options.notes = drift.not_judged;
  const auto all = movements(pair_up(a, b), options.tolerance, drift);
  print_movements(all, options);
  return std::all_of(all.begin(), all.end(), [](const Movement& movement) { return movement.agrees(); });
}

/// Whether it is a run of fingerprints: stdin, a pipe, or a file of frames.
bool has_prints(const std::string& path) {
  if (path == "-" || fs::is_fifo(path)) return true;
  if (!fs::is_regular_file(path)) return false;
  char magic[4] = {};
  open_to_read(path).read(magic, sizeof magic);
  return std::string(magic, sizeof magic) == "TTF1";
}

/// Throws for an option that does not apply to the compared files.
void refuse(const CLI::App& command, const std::vector<std::string>& names, const std::string& remedy) {
  for (const std::string& name : names) TORCH_CHECK_VALUE(command.count(name) == 0, name, " is for ", remedy);
}

/// Returns the exit status.
int compare(const CLI::App& command, const CompareAsked& options) {
  const std::string &a = options.a, &b = options.b;
  const auto both = [&](bool in_a, bool in_b, const char* what, const char* remedy) {
    TORCH_CHECK_VALUE(in_a == in_b, "only one of \"", a, "\" and \"", b, "\" is ", what,
                      "; compare it with another one (", remedy, ").");
    return in_a;
  };
  // A program that crashed leaves an empty file, which is said where it is read.
  const auto is_empty = [](const std::string& path) {
    return fs::is_regular_file(path) && fs::file_size(path) == 0;
  };
  const bool of_prints = options.prints.runs.empty() && (has_prints(a) || has_prints(b));
  if (!options.prints.runs.empty() ||
      both(has_prints(a) || (of_prints && is_empty(a)), has_prints(b) || (of_prints && is_empty(b)),
           "a run of fingerprints", "python3 -m torchtap_compare, torchtap preload --fingerprint")) {
    refuse(command, {"--rtol", "--atol", "--csv"},
           "recordings and files; fingerprints have --tolerance, --bits and --json.");
    PrintsOptions prints = options.prints;
    if (prints.runs.empty()) prints.sides = {a, b};
    return compare_prints(prints);
  }
  refuse(
      command, {"--map", "--bits", "--all"},
      "fingerprints; recordings and files are matched by name, have --rtol and --atol, and show all lines.");
  const CompareOptions how{a, b, options.values,
                           options.prints.json ? Format::json
                           : options.csv       ? Format::csv
                                               : Format::table};
  const Layers of_a = open_layers(a), of_b = open_layers(b);
  const bool traces = both(is_trace(of_a), is_trace(of_b), "a trace", "torchtap trace --save");
  const bool exact = command.count("--rtol") + command.count("--atol") > 0;
  if (!traces && !exact && has_statistics(of_a) && has_statistics(of_b)) {
    std::string distance = options.prints.tolerance.empty() ? kDistance : options.prints.tolerance;
    const std::string wrong = tolerance()(distance);
    TORCH_CHECK_VALUE(wrong.empty(), "--tolerance of statistics: ", wrong, ".");
    return compare_statistics(of_a, of_b, {a, b, std::strtod(distance.c_str(), nullptr), how.format},
                              !options.prints.tolerance.empty())
               ? 0
               : 1;
  }
  refuse(
      command, {"--tolerance"},
      "recordings of statistics and for fingerprints, but one of these has tensors; use --rtol and --atol.");
  return traces ? compare_traces(how) : compare_values(of_a, of_b, how);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareAsked>();
  auto& prints = options->prints;
  CLI::App* command =
      app.add_subcommand("compare", "Say what differs first between two runs, recordings or files");
  command->footer(kCompareExamples);
  const CLI::Validator readable(
      [](std::string& path) { return path == "-" ? std::string() : CLI::ExistingPath(path); }, "PATH");
  auto* first =
      command
          ->add_option("a", options->a,
                       "Fingerprints (- is stdin), a recording, a trace, a file or a folder of tensors")
          ->check(readable);
  auto* second = command->add_option("b", options->b, "What to compare it with")->check(readable);
  command->add_option("--run", prints.runs, "A command line to run; twice, instead of A and B")
      ->allow_extra_args(false)
      ->excludes(first)
      ->excludes(second);
  auto* rtol = command->add_option("--rtol", options->values.rtol, "Relative tolerance, number by number")
                   ->check(tolerance())
                   ->capture_default_str();
  auto* atol = command->add_option("--atol", options->values.atol, "Absolute tolerance, number by number")
                   ->check(tolerance())
                   ->capture_default_str();
  command
      ->add_option("--tolerance", prints.tolerance,
                   "Of statistics, the largest distance at which modules agree, also where blocks could "
                   "tell; of fingerprints, two "
                   "factors of rounding, of what a call adds and of what it was given (16,4)")
      ->excludes(rtol)
      ->excludes(atol);
  command
      ->add_option("--map", prints.map,
                   "Of fingerprints: which names of A are which of B, 'layer1.*=stage1.*'")
      ->allow_extra_args(false);
  command->add_option("--forwards", prints.forwards, "Of --run: forwards to compare; 0 for all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--skip", prints.skip, "Of --run: forwards to leave out before")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--bits", prints.bits, "Of fingerprints: other bits are a difference");
  command->add_flag("--all", prints.all, "Of fingerprints: print every line");
  auto* json = command->add_flag("--json", prints.json, "Write JSON");
  command->add_flag("--csv", options->csv, "Write comma-separated values")->excludes(json);
  command->callback([command, options] {
    const auto runs = options->prints.runs.size();
    if (runs == 0 && options->b.empty()) throw CLI::RequiredError("A and B (or --run twice)");
    TORCH_CHECK_VALUE(runs == 0 || runs == 2, "--run is given ", runs, " time", runs == 1 ? "" : "s",
                      "; it names the two programs to compare.");
    TORCH_CHECK_VALUE(runs != 0 || command->count("--forwards") + command->count("--skip") == 0,
                      "--forwards and --skip are for --run; files have the forwards that were written.");
    if (const int status = compare(*command, *options)) throw CLI::RuntimeError(status);
  });
}

}  // namespace torchtap::tools
