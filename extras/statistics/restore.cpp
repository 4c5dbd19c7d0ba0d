// Makes reductions from their recipes, and loads their states.

#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/by.hpp>
#include <torchtap/reductions/every.hpp>
#include <torchtap/reductions/over.hpp>
#include <torchtap/reductions/where.hpp>
#include <torchtap/reductions/window.hpp>
#include <torchtap/statistics/cross_covariance.hpp>
#include <torchtap/statistics/detail/catalogue.hpp>
#include <torchtap/statistics/detail/expression.hpp>
#include <torchtap/statistics/joint.hpp>
#include <torchtap/statistics/linear_cka.hpp>
#include <torchtap/statistics/restore.hpp>

namespace torchtap::reductions {
namespace {

using Combine = std::function<Any(std::vector<Any> parts)>;

/// The component that adds this reduction to the catalogue when it is loaded, for errors; null if none does.
const char* component_of(const std::string& name) {
  return name == "Formats" ? "quantization" : nullptr;
}

[[noreturn]] void bad_recipe(const std::string& text) {
  TORCH_CHECK_VALUE(false, "reductions::restore: \"", text, "\" is not a recipe of torchtap's reductions.");
}

/// The combinators by name. Numbers are placeholders; the configuration is read with the state.
const Combine* combinator(const std::string& name) {
  static const auto& all = *new const std::map<std::string, Combine>{
      // also when a program ends
      {"Series", [](auto parts) { return Any(AnySeries(std::move(parts))); }},
      {"Every", [](auto parts) { return Any(Every<Any>(1, std::move(parts.at(0)))); }},
      {"By", [](auto parts) { return Any(By(ByOptions(""), std::move(parts.at(0)))); }},
      {"Joint", [](auto parts) { return Any(Joint("", std::move(parts.at(0)))); }},
      {"Where", [](auto parts) { return Any(Where("", std::move(parts.at(0)))); }},
      {"Over", [](auto parts) { return Any(Over<Any>({}, std::move(parts.at(0)))); }},
      {"Window", [](auto parts) { return Any(Window<Any>(1, std::move(parts.at(0)))); }},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

Any of_recipe(const statistics::detail::Expression& recipe) {
  if (const Combine* const combine = combinator(recipe.word)) {
    if (recipe.parts.empty() || (recipe.parts.size() > 1 && recipe.word != "Series"))
      bad_recipe(recipe.text());
    std::vector<Any> parts;
    for (const auto& part : recipe.parts) parts.push_back(of_recipe(part));
    return (*combine)(std::move(parts));
  }
  if (recipe.parts.empty() && recipe.word == "LinearCKA") return LinearCKA("");
  if (recipe.parts.empty() && recipe.word == "CrossCovariance") return CrossCovariance("");
  for (const auto& known : statistics::detail::all_named()) {
    if (known.entry.name == recipe.word && recipe.parts.empty()) return known.blank();
  }
  const char* const component = component_of(recipe.word);
  TORCH_CHECK_VALUE(component == nullptr, "reductions::restore: ", recipe.word,
                    " is a reduction of the component ", component,
                    ", which this program does not have; link ", "torchtap::", component, ".");
  bad_recipe(recipe.text());
}

/// `recipe := name | name "(" recipe { ", " recipe } ")"`.
Any of_recipe(const std::string& text) {
  const auto recipe = statistics::detail::read_expressions("reductions::restore", text);
  if (recipe.size() != 1 || recipe.front().text() != text) bad_recipe(text);
  return of_recipe(recipe.front());
}

}  // namespace

Any restore(const core::SavedSink& saved) {
  Any reduction = of_recipe(saved.recipe);
  std::istringstream stream(saved.bytes);
  const auto damaged = [&](const std::string& why) {
    TORCH_CHECK_VALUE(false, "reductions::restore: the state of ", saved.recipe, " is damaged: ", why);
  };
  try {
    core::InputArchive archive(stream);
    reduction.load(archive);
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception&) {  // cereal::Exception
    damaged("it claims more than it holds.");
  }
  if (stream.peek() != std::istringstream::traits_type::eof()) damaged("it has bytes after its end.");
  return reduction;
}

}  // namespace torchtap::reductions
