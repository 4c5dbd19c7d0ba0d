#include "manifest.hpp"

#include <iostream>

#include "dump.hpp"
#include "files/checkpoint_texts.hpp"
#include "files/csv.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

void print_table(const std::vector<const Layer*>& layers) {
  using Align = Table::Align;
  Table table({{"index", Align::right, 20},
               {"path", Align::left, Table::kAlways, 20, true},
               {"type", Align::left, 50, 12},
               {"kind", Align::left, 30},
               {"samples", Align::right, 90},
               {"reduction", Align::left, 40, 12},
               {"dtype", Align::left, 80},
               {"shape", Align::left, 95},
               {"bytes", Align::right, 60}});
  table.folds_constant_columns();
  for (const Layer* layer : layers) {
    const auto& entry = layer->entry;
    const bool values = !entry.dtype().empty();
    table.add({std::to_string(layer->index), shown_path(layer->path), entry.type(), entry.kind(),
               std::to_string(entry.samples()), entry.reduction().empty() ? "-" : entry.reduction(),
               values ? entry.dtype() : "-",
               values ? (entry.ragged() ? "ragged" : shape_to_text(entry.shape())) : "-",
               bytes_text(entry.bytes())});
  }
  table.print(std::cout);
  for (const Layer* layer : layers) print_note(*layer);
}

}  // namespace

void print_note(const Layer& layer) {
  const std::string& note = layer.entry.note();
  if (note.empty()) return;
  // For samples that were left out the note is exact; otherwise it is a guess.
  const bool guess = layer.entry.samples() == 0 && note.rfind("the program", 0) == 0;
  print_wrapped(std::cout,
                shown_path(layer.path) + (guess ? " has no samples: maybe " : ": ") + printable(note));
}

Json describe(const Layer& layer) {
  const auto& entry = layer.entry;
  return {{"index", layer.index},           {"path", layer.path},       {"aliases", entry.aliases()},
          {"type", entry.type()},           {"kind", entry.kind()},     {"samples", entry.samples()},
          {"reduction", entry.reduction()}, {"results", entry.keys()},  {"dtype", entry.dtype()},
          {"shape", entry.shape()},         {"ragged", entry.ragged()}, {"file", entry.file()},
          {"bytes", entry.bytes()},         {"note", entry.note()}};
}

void print_manifest(const Layers& layers, const std::string& path, const std::string& entry, Format format) {
  const auto chosen = layers.chosen(entry);
  if (format == Format::table) {
    print_table(chosen);
    print_beside(layers);
    return print_texts(layers);
  }
  Json entries = Json::array();
  for (const Layer* layer : chosen) entries.push_back(describe(*layer));
  if (format == Format::csv) return print_csv(entries);
  Json document{{"path", path},
                {"library", layers.library},
                {"created", layers.created},
                {"entries", std::move(entries)},
                {"texts", texts_as_json(layers)}};
  for (const auto& one : layers.beside) {
    if (one.kind() == "Beside")
      document["beside"].push_back({{"name", one.path()}, {"dtype", one.dtype()}, {"shape", one.shape()}});
  }
  print(document);
}

}  // namespace torchtap::tools
