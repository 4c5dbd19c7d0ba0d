// Turns the sums into measurements.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/report/detail/measured_model.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::report::detail {
namespace {

Times times_of(const TimeSums& sums, std::int64_t calls) {
  Times times;
  times.calls = calls;
  times.first = sums.first < 0 ? 0 : static_cast<double>(sums.first) * 1e-9;
  times.total = static_cast<double>(sums.total) * 1e-9;
  if (sums.repeats == 0) return times;
  std::vector<std::int64_t> sorted = sums.some;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t size = sorted.size();
  times.min = static_cast<double>(sums.least) * 1e-9;
  times.median =
      (static_cast<double>(sorted[(size - 1) / 2]) * 1e-9 + static_cast<double>(sorted[size / 2]) * 1e-9) / 2;
  // The smallest that nine tenths do not exceed.
  times.p90 = static_cast<double>(sorted[(9 * size + 9) / 10 - 1]) * 1e-9;
  return times;
}

/// The norm as `at::norm` has it: NaN if an element is NaN.
double norm_of(const watch::Column& column) {
  if (column.nan > 0) return std::numeric_limits<double>::quiet_NaN();
  return column.finite() < column.count ? std::numeric_limits<double>::infinity() : column.norm();
}

Direction direction_of(const DirectionSums& sums) {
  Direction direction;
  direction.inclusive = times_of(sums.inclusive, sums.calls);
  direction.self = times_of(sums.self, sums.calls);
  direction.memory = sums.memory;
  direction.work = sums.work;
  direction.self_work = sums.self_work;
  direction.in = sums.in;
  direction.out = sums.out;
  return direction;
}

/// Adds the parameters and buffers of a module and of those inside, each tensor once.
class Holdings {
 public:
  Holdings(const std::vector<TreeNode>& tree, ModuleRow& row) : tree_(tree), row_(row) {}

  void add(std::int64_t index) {
    if (!modules_.insert(index).second) return;
    for (const Held& held : tree_[index].held) {
      if (!tensors_.insert(held.tensor.unsafeGetTensorImpl()).second) continue;
      if (held.buffer) {
        row_.buffer_bytes += bytes_of(held.tensor);
        continue;
      }
      const std::int64_t elements = held.tensor.is_nested() ? 0 : held.tensor.numel();
      row_.parameters += elements;
      if (held.tensor.requires_grad()) row_.learnable_parameters += elements;
      row_.parameter_bytes += bytes_of(held.tensor);
      if (held.tensor.is_leaf() && held.tensor.grad().defined())
        row_.gradient_bytes += bytes_of(held.tensor.grad());
    }
    for (const std::int64_t child : tree_[index].children) add(child);
  }

 private:
  const std::vector<TreeNode>& tree_;
  ModuleRow& row_;
  std::unordered_set<std::int64_t> modules_;
  std::unordered_set<const at::TensorImpl*> tensors_;
};

}  // namespace

ModuleRow MeasuredModel::row(std::int64_t index) const {
  const TreeNode& node = ledger_.tree[index];
  ModuleRow row;
  row.path = node.module.path();
  row.name = row.path.substr(row.path.rfind('.') + 1);
  row.aliases = node.module.aliases();
  row.type = node.module.type();
  row.has_forward = node.module.has_forward();
  row.reachable = node.module.reachable();
  row.inputs = node.inputs;
  row.outputs = node.outputs;
  row.input_gradients = node.input_gradients;
  row.output_gradients = node.output_gradients;
  Holdings(ledger_.tree, row).add(index);
  row.parameter_values = node.parameter_values;
  row.forward = direction_of(node.forward);
  row.backward = direction_of(node.backward);
  std::uint64_t zeros = 0, elements = 0;
  for (const auto& [slot, column] : node.values) {
    zeros += column.zeros;
    elements += column.count;
  }
  if (elements > 0) row.zero_fraction = static_cast<double>(zeros) / static_cast<double>(elements);
  if (node.gradient && node.gradient->count > 0) row.gradient_norm = norm_of(*node.gradient);
  bool uses = node.used;
  for (const std::int64_t child : node.children) {
    const ModuleRow& inside = row.children.emplace_back(this->row(child));
    const bool ran = inside.summed || inside.forward.self.calls > 0 || inside.backward.self.calls > 0;
    row.summed = row.summed || (ran && !node.called);
    uses = uses || inside.used_without_call;
  }
  // If a torch::nn module is reachable and counts as having no forward, LibTorch leaves it uncalled.
  const bool may_be_used = row.reachable && (row.has_forward || !scripted);
  row.used_without_call = uses && !node.called && !row.summed && may_be_used;
  return row;
}

std::vector<std::string> MeasuredModel::all_notes() const {
  std::vector<std::string> notes = notes_;
  std::vector<std::string> hidden;
  bool root_hidden = false;
  for (const TreeNode& node : ledger_.tree) {
    if (!node.module.has_forward() || node.module.reachable()) continue;
    if (node.parent < 0) {
      root_hidden = true;
    } else {
      hidden.push_back(node.module.path());
    }
  }
  const char* const remedy = " Link the program with torchtap::transparent to see more.";
  if (root_hidden) {
    notes.push_back(
        c10::str("The calls of the model itself cannot be seen in this program: its row is the "
                 "sum of the modules inside, and its own operations count as outside of modules.",
                 hidden.empty() ? remedy : ""));
  }
  if (!hidden.empty()) {
    const std::size_t all = hidden.size();
    if (all > 5) hidden.resize(5);
    notes.push_back(c10::str(text::counted(static_cast<std::int64_t>(all), "module"),
                             " cannot be hooked in this program, so that what ",
                             all == 1 ? "it does" : "they do", " counts as part of the ",
                             all == 1 ? "module" : "modules", " around: ", base::quoted(hidden),
                             all > 5 ? ", …" : "", ".", remedy));
  }
  std::vector<std::string> shared;
  std::unordered_map<const at::TensorImpl*, std::string> places;
  for (const TreeNode& node : ledger_.tree) {
    for (const Held& held : node.held) {
      const auto [first, is_new] = places.emplace(held.tensor.unsafeGetTensorImpl(), held.path);
      if (!is_new && !held.buffer) shared.push_back(held.path + " is " + first->second);
    }
  }
  if (!shared.empty()) {
    const std::size_t all = shared.size();
    if (all > 5) shared.resize(5);
    std::string names;
    for (const std::string& one : shared) names += (names.empty() ? "" : ", ") + one;
    notes.push_back("Parameters that several modules share count once: " + names + (all > 5 ? ", …." : "."));
  }
  if (recorded_ == 0) return notes;
  if (followed_ > 0) {
    notes.push_back(c10::str("Repeats of ", followed_ + 1,
                             " models of the same modules, of which each was there after the one before."));
  }
  if (ledger_.tree.front().module.frozen()) {
    notes.emplace_back("The model is frozen: its file has no modules other than the root.");
  }
  if (heap_taken) {
    notes.emplace_back("Memory was not watched, because another report of this process watches it.");
  } else if (options.memory()) {
    notes.emplace_back(
        "Memory is LibTorch's own; scratch memory of oneDNN, BLAS and other libraries is not counted.");
  }
  if (heap_displaced) {
    notes.emplace_back(
        "Memory of devices other than the CPU was not watched, because a profiler watches it.");
  }
  if (ledger_.interrupted > 0) {
    notes.push_back(c10::str(text::counted(ledger_.interrupted, "call"), " ended by an exception; ",
                             ledger_.interrupted == 1
                                 ? "its time reaches to the last operation or module that it ran."
                                 : "their times reach to the last operation or module that they ran."));
  }
  if (search_.left_out > 0) {
    notes.push_back(c10::str(text::counted(search_.left_out, "further finding"),
                             search_.left_out == 1 ? " was" : " were", " left out."));
  }
  const Calibration& taken = ledger_.calibration;
  if (taken.around + taken.inside + taken.operation > 0) {
    notes.push_back(
        c10::str("Taken out of the times, besides torchtap's own seconds: ", taken.inside + taken.around,
                 " ns for each call of a module and ", taken.operation, " ns for each operation."));
  }
  return notes;
}

Measurements MeasuredModel::results() const {
  const base::RecordingMode mode;
  std::unique_lock lock(mutex_);
  if (of_gone_.has_value()) return *of_gone_;
  Measurements results;
  results.root = row(0);
  results.repeats = repeats_;
  results.warmup = options.warmup();
  results.findings = search_.findings();
  for (const auto& entry : not_counted_) {
    results.not_counted.push_back({entry.first.first, entry.first.second, entry.second});
  }
  results.outside_forward = ledger_.outside_forward;
  results.outside_backward = ledger_.outside_backward;
  results.outside_forward_seconds = outside_seconds_[0];
  results.outside_backward_seconds = outside_seconds_[1];
  results.seconds = seconds_;
  results.own_seconds = own_seconds_;
  results.forward_memory = ledger_.whole[0];
  results.backward_memory = ledger_.whole[1];
  results.notes = all_notes();
  if (recorded_ > 0) judge(results.root, lock);
  return results;
}

}  // namespace torchtap::views::report::detail
