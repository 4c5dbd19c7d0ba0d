// What models of Python compute, for other processes.

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/views/stream/publisher.hpp>

#include "viewed_model.hpp"

namespace torchtap::python {
namespace {

namespace stream = views::stream;

struct Published {
  std::vector<std::unique_ptr<ViewedModel>> models;
  std::vector<std::unique_ptr<recorders::Recorder>> recorders;
  std::unique_ptr<stream::Publisher> publisher;

  stream::Publisher& open() {
    TORCH_CHECK(publisher != nullptr, "torchtap.publish: it was closed; make another one.");
    return *publisher;
  }
};

py::tuple attach(Published& one, py::handle model, const selectors::Selector& selector,
                 const std::vector<std::string>& kinds) {
  auto viewed = std::make_unique<ViewedModel>(model);
  std::vector<std::unique_ptr<recorders::Recorder>> recorders;
  for (const std::string& kind : kinds) {
    recorders.push_back(
        recorders::make(kind, recorders::RecorderOptions().stream(one.open()).all_tensors(true)));
    unlocked([&] { recorders.back()->attach(selectors::select(viewed->modules(), selector)); });
  }
  for (auto& recorder : recorders) one.recorders.push_back(std::move(recorder));
  one.models.push_back(std::move(viewed));
  return py::make_tuple(one.models.back()->hooks(/*now=*/true), one.models.back()->notes());
}

void define(py::module_& module) {
  py::class_<Published>(module, "Published")
      .def(py::init(
          [](const std::string& name, std::int64_t bytes, const std::string& directory, std::int64_t rank) {
            auto one = std::make_unique<Published>();
            one->publisher = std::make_unique<stream::Publisher>(
                name, stream::PublisherOptions().bytes(bytes).directory(directory).rank(rank));
            return one;
          }))
      .def("attach", &attach)
      .def("send",
           [](Published& one, const std::string& path, const at::Tensor& tensor) {
             return unlocked([&] { return one.open().source(path).publish(tensor); });
           })
      .def("annotate",
           [](Published& one, const std::string& text) { unlocked([&] { one.open().annotate(text); }); })
      .def_property_readonly("name", [](Published& one) { return one.open().name(); })
      .def_property_readonly("socket", [](Published& one) { return one.open().socket(); })
      .def("readers", [](Published& one) { return unlocked([&] { return one.open().readers().size(); }); })
      .def("sent", [](Published& one) { return unlocked([&] { return one.open().counters().published; }); })
      .def("close", [](Published& one) {
        const auto ended = std::move(one.publisher);
        auto recorders = std::move(one.recorders);
        unlocked([&] { recorders.clear(); });
      });
}

const DefinedView defined("stream", &define);

}  // namespace
}  // namespace torchtap::python
