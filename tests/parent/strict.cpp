// What a parent project with strict warnings of its own reads of ours: add_subdirectory hands headers over by
// -I, so that nobody is spared their warnings.
#include <torchtap/cuda/cuda.hpp>
#include <torchtap/distributed/distributed.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/quantization/quantization.hpp>
#include <torchtap/torchtap.hpp>
#include <torchtap/transparent/transparent.hpp>
#include <torchtap/views/compare/compare.hpp>
#include <torchtap/views/explorer/explorer.hpp>
#include <torchtap/views/monitor/monitor.hpp>
#include <torchtap/views/report/report.hpp>
#include <torchtap/views/stream/stream.hpp>
#include <torchtap/views/trace/trace.hpp>

// Templates that every program instantiates.
void record(torch::nn::Sequential model, const std::shared_ptr<torch::nn::LinearImpl>& shared) {
  torchtap::recorders::ForwardOutput recorder(torchtap::reductions::Moments{});
  recorder.attach(model, torchtap::selectors::types<torch::nn::ReLU>());
  recorder.attach(shared);
}
