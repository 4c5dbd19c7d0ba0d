// Applies rules to the measurements.
#include <algorithm>
#include <map>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/rules/rules.hpp>
#include <torchtap/views/report/detail/fields.hpp>
#include <torchtap/views/report/detail/measured_model.hpp>

namespace torchtap::views::report::detail {
namespace {

struct Placed {
  std::int64_t order;
  const TreeNode* node;
  ModuleRow* row;
};

/// Modules that were not called follow the module around them.
void collect(const std::vector<TreeNode>& tree, std::int64_t index, ModuleRow& row, std::int64_t around,
             std::vector<Placed>& placed) {
  const TreeNode& node = tree[index];
  const std::int64_t order = node.order < 0 ? around : node.order;
  placed.push_back({order, &node, &row});
  for (std::size_t i = 0; i < row.children.size(); ++i)
    collect(tree, node.children[i], row.children[i], order, placed);
}

bool never_ran(const ModuleRow& row) {
  return row.has_forward && row.reachable && !row.summed && !row.used_without_call &&
         row.forward.inclusive.calls == 0 && row.inputs.empty() && row.outputs.empty();
}

void add_facts(const TreeNode& node, const ModuleRow& row, bool looks, std::vector<rules::Facts>& facts) {
  rules::Facts module;
  module.path = row.path;
  module.type = row.type;
  module.leaf = row.children.empty();
  if (never_ran(row)) {
    module.calls = 0;
  } else if (row.forward.inclusive.calls > 0) {
    module.calls = static_cast<double>(row.forward.inclusive.calls);
  }
  const auto add = [&](rules::Tensor tensor, std::int64_t slot = 0) -> rules::Facts& {
    facts.push_back(module);
    facts.back().tensor = tensor;
    facts.back().slot = slot;
    return facts.back();
  };
  const auto add_counts = [&](rules::Tensor tensor, const NonFinite& values) {
    if (!any(values)) return;
    rules::Facts& one = add(tensor);
    one.nan = static_cast<double>(values.nan);
    one.inf = static_cast<double>(values.inf);
  };
  add_counts(rules::Tensor::input, row.forward.in);
  if (module.calls == 0.0) add(rules::Tensor::output);
  if (node.values.empty()) add_counts(rules::Tensor::output, row.forward.out);
  for (const auto& [slot, column] : node.values) watch::put(column, add(rules::Tensor::output, slot));
  add_counts(rules::Tensor::gradient, row.backward.in);
  add_counts(rules::Tensor::gradient, row.backward.out);
  if (node.gradient) watch::put(*node.gradient, add(rules::Tensor::gradient));
  add_counts(rules::Tensor::parameter, row.parameter_values);
  std::int64_t position = 0;
  for (const Held& held : node.held) {
    if (held.buffer) continue;
    rules::Facts& one = add(rules::Tensor::parameter, position++);
    one.dimensions = held.tensor.dim();
    if (looks && held.first && is_looked_through(held.tensor)) watch::put(watch::measure(held.tensor), one);
  }
}

void add_mark(const rules::Finding& finding, ModuleRow& row) {
  std::string sentence = finding.sentence;
  if (finding.rule != "never_ran") sentence = std::string(name_of(finding.tensor)) + ": " + sentence;
  const auto known = std::find(row.marks.begin(), row.marks.end(), finding.rule);
  if (known == row.marks.end()) {
    row.marks.push_back(finding.rule);
    row.mark_sentences.push_back(std::move(sentence));
  } else {
    row.mark_sentences[static_cast<std::size_t>(known - row.marks.begin())] += "; " + sentence;
  }
}

}  // namespace

void MeasuredModel::judge(ModuleRow& root, std::unique_lock<std::mutex>& lock) const {
  std::vector<Placed> placed;
  collect(ledger_.tree, 0, root, -1, placed);
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.order < b.order; });
  std::vector<rules::Facts> facts;
  std::map<std::string, ModuleRow*> rows;
  double before = 0;
  for (const auto& [order, node, row] : placed) {
    rows.emplace(row->path, row);
    add_facts(*node, *row, options.non_finite() != OnNonFinite::ignore, facts);
    if (!node->gradient) continue;
    const double own = node->gradient->root_mean_square();
    if (before > 0 && std::isfinite(*row->gradient_norm)) row->gradient_ratio = own / before;
    if (row->children.empty() && own > 0) before = own;
  }
  lock.unlock();
  for (const rules::Finding& finding : rules::check(facts, options.rules()))
    add_mark(finding, *rows.at(finding.path));
}

}  // namespace torchtap::views::report::detail
