#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/exported/detail/package.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::exported::detail {
namespace {

using model::extend::Node;

Tapped whole_model(const Listing& listing) {
  Tapped root;
  root.type = listing.type;
  root.qualified_type = listing.qualified_type;
  root.leaf = listing.modules.empty();
  root.calls = 1;
  root.inputs = root.outputs = root.replaceable = true;
  return root;
}

ExpectedInput expected(const Input& input) {
  ExpectedInput expected{storage::dtype_of(input.dtype), {}};
  for (const auto& size : input.shape) {
    const bool is_number = !size.empty() && size.find_first_not_of("0123456789") == std::string::npos;
    expected.sizes.push_back(is_number ? std::stoll(size) : -1);  // -1 for an expression of dynamic sizes
  }
  return expected;
}

std::int64_t depth_of(const std::string& path) {
  return path.empty() ? 0 : 1 + std::count(path.begin(), path.end(), '.');
}

}  // namespace

Package::Package(std::string file, Listing listing)
    : file_(std::move(file)), inputs_(std::move(listing.inputs)) {
  for (const Input& input : inputs_) expected_inputs_.push_back(expected(input));
  places_.emplace_back(whole_model(listing));
  for (auto& module : listing.modules) {
    const std::string path = module.path;
    TORCH_CHECK_VALUE(!path.empty() && by_path_.count(path) == 0, "exported::Model: the list of taps in \"",
                      file_, "\" is damaged: it has \"", path,
                      "\" twice. Compile the model again with torchtap.export.compile.");
    Place& place = places_.emplace_back(std::move(module));
    by_path_.emplace(place.module.path, &place);
  }
}

Place* Package::find(std::string_view path) noexcept {
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? nullptr : found->second;
}

std::vector<model::ModuleRef> Package::modules(bool children) const {
  std::vector<model::ModuleRef> modules;
  std::shared_ptr<const Node> root;
  for (Place& place : places_) {
    auto node = std::make_shared<Node>();
    node->path = place.module.path;
    node->aliases = place.module.aliases;
    node->type = place.module.type;
    node->qualified_type = place.module.qualified_type;
    node->depth = depth_of(node->path);
    node->leaf = place.module.leaf;
    node->identity = &place;
    node->taps = {place.module.inputs, place.module.outputs, place.module.replaceable};
    node->owner = shared_from_this();
    node->doors.point = &place;
    node->root = root;
    if (root == nullptr) root = node;
    if (children && node->depth != 1) continue;
    node->index = static_cast<std::int64_t>(modules.size());
    modules.push_back(model::extend::Access::make(std::move(node)));
  }
  return modules;
}

}  // namespace torchtap::exported::detail
