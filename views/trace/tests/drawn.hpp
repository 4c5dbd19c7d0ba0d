#pragma once

#include <boost/test/unit_test.hpp>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support.hpp"

/// Reads what `History::dot` writes.
namespace support {

using Attributes = trace::DrawOptions::Attributes;

/// A graph in Graphviz' language, read line by line as `History::dot` writes it.
struct Drawn {
  struct Arrow {
    std::string from, to, label, color;
    bool operator<(const Arrow& other) const {
      return std::tie(from, to, label, color) < std::tie(other.from, other.to, other.label, other.color);
    }
  };
  std::map<std::string, Attributes> boxes;   // by the first line of their labels
  std::map<std::string, std::string> frame;  // of each box, the label of the innermost frame; "" for none
  std::vector<std::string> frames;           // labels
  std::set<Arrow> arrows;                    // ends by the first lines of their labels
  Attributes graph;
};

inline std::string unquoted(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    if (escaped) ++i;
    result += escaped && (text[i] == 'n' || text[i] == 'l') ? '\n' : text[i];
  }
  return result;
}

inline Attributes attributes_in(const std::string& line) {
  static const std::regex pair(R"x("((?:[^"\\]|\\.)*)"="((?:[^"\\]|\\.)*)")x");
  Attributes found;
  for (std::sregex_iterator match(line.begin(), line.end(), pair), end; match != end; ++match) {
    found[unquoted((*match)[1])] = unquoted((*match)[2]);
  }
  return found;
}

inline std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

inline Drawn read(const std::string& dot) {
  static const std::regex box(R"(\s*(n\d+) \[.*)"), arrow(R"(\s*(n\d+) -> (n\d+).*)"),
      begin(R"(\s*subgraph .*)"), graph(R"(\s*graph \[.*)"), end(R"(\s*\})");
  Drawn drawn;
  std::map<std::string, std::string> names;
  std::vector<std::string> open;
  std::istringstream lines(dot);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, arrow)) {
      Attributes attributes = attributes_in(line);
      drawn.arrows.insert({names.at(match[1]), names.at(match[2]), attributes["label"], attributes["color"]});
    } else if (std::regex_match(line, match, box)) {
      const Attributes attributes = attributes_in(line);
      const std::string name = first_line(attributes.at("label"));
      BOOST_TEST(drawn.boxes.count(name) == 0U, name << " is drawn twice");
      names[match[1]] = name;
      drawn.boxes[name] = attributes;
      drawn.frame[name] = open.empty() ? "" : open.back();
    } else if (std::regex_match(line, graph) && open.empty() && drawn.graph.empty()) {
      drawn.graph = attributes_in(line);
    } else if (std::regex_match(line, begin)) {
      open.emplace_back();
    } else if (std::regex_match(line, graph)) {
      open.back() = attributes_in(line).at("label");
      drawn.frames.push_back(open.back());
    } else if (std::regex_match(line, end) && !open.empty()) {
      open.pop_back();
    }
  }
  return drawn;
}

inline Drawn drawn(const trace::History& history, const trace::DrawOptions& options = {}) {
  return read(history.dot(options));
}

using Ends = std::set<std::pair<std::string, std::string>>;

inline Ends ends_of(const Drawn& drawn) {
  Ends ends;
  for (const auto& arrow : drawn.arrows) ends.insert({arrow.from, arrow.to});
  return ends;
}

inline Ends edges_of(const trace::History& history) {
  Ends ends;
  for (const trace::Node& node : history) {
    for (const trace::Node& parent : node.parents()) ends.insert({parent.label(), node.label()});
  }
  return ends;
}

}  // namespace support
