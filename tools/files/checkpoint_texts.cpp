#include "checkpoint_texts.hpp"

#include <ATen/core/Tensor.h>

#include <iostream>

#include "terminal/message_text.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

void collect(const core::Value& value, const std::string& name,
             std::vector<std::pair<std::string, std::string>>& texts) {
  if (value.is_text()) texts.emplace_back(name, value.text());
  if (value.is_list()) {
    for (std::size_t i = 0; i < value.list().size(); ++i) {
      collect(value.list()[i], name + "[" + std::to_string(i) + "]", texts);
    }
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict()) collect(item, name.empty() ? key : name + "." + key, texts);
  }
}

bool is_number(const core::Value& value) {
  return value.is_tensor() && value.tensor().defined() && value.tensor().dim() == 0 &&
         !value.tensor().is_complex();
}

/// The value of a single file. Recordings are not searched: their manifest describes them.
core::Value file_of(const Layers& layers) {
  return layers.is_file() ? layers.all.front().entry.value() : core::Value();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> texts_of(const core::Value& value) {
  std::vector<std::pair<std::string, std::string>> texts;
  collect(value, "", texts);
  return texts;
}

Json texts_as_json(const Layers& layers) {
  Json object = Json::object();
  const core::Value value = file_of(layers);
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict()) {
      if (is_number(item)) object[key] = to_json(item.tensor());
    }
  }
  for (const auto& [name, text] : texts_of(value)) object[name] = text;
  return object;
}

void print_texts(const Layers& layers) {
  const Json object = texts_as_json(layers);
  if (!object.empty()) std::cout << '\n';
  for (const auto& [name, value] : object.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    std::cout << printable(name.empty() ? "text" : name) << ": " << printable(text) << '\n';
  }
}

}  // namespace torchtap::tools
