#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pictures/pictures.hpp"

/// One picture of several modules at once.
namespace torchtap::tools::stream {

struct PanelOptions {
  std::size_t width = 1280, height = 720;
  std::string picture = "auto";  ///< "histogram" for all, or "auto"
  std::int64_t pick = 0;         ///< which sample of a batch
  pictures::Range range;         ///< of all modules; empty: of each its own
};

/// The last tensor of each of some modules, drawn side by side. Modules are told apart by their titles. The
/// first drawing decides where each of them is; later ones are left out.
class Panels {
 public:
  explicit Panels(PanelOptions options) : options_(std::move(options)) {}

  /// Takes a tensor in. `note` is written below the title.
  void add(const std::string& title, const at::Tensor& tensor, const std::string& note);
  /// Takes only its range in, so that pictures of a recording have one range from the beginning.
  void prepare(const std::string& title, const at::Tensor& tensor);
  bool empty() const noexcept { return order_.empty(); }
  /// Whether there is a tensor of this module since the last drawing.
  bool is_new(const std::string& title) const;
  /// Draws all, with `text` at the top.
  pictures::Image draw(const std::string& text);
  /// How many modules were left out.
  std::size_t left_out() const noexcept { return left_out_; }

 private:
  struct Panel {
    at::Tensor maps;  // undefined if it is a histogram
    pictures::HistogramOverTime histogram;
    pictures::Range range;
    std::string note;
    bool is_new = false;
    bool added = false;
  };
  Panel& panel(const std::string& title);
  bool has_maps(const at::Tensor& tensor) const;
  void draw_panel(pictures::Image& image, const std::string& title, const Panel& panel, std::size_t x,
                  std::size_t y, std::size_t width, std::size_t height) const;

  PanelOptions options_;
  std::map<std::string, Panel> panels_;
  std::vector<std::string> order_;  // of the added panels
  std::size_t drawn_ = 0;           // how many there were at the first drawing
  std::size_t left_out_ = 0;
};

}  // namespace torchtap::tools::stream
