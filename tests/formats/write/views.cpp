// Writes the files of views: write_view_formats FOLDER. Run it only for a new format, as write_formats.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cstdio>
#include <exception>
#include <string>

#include <torchtap/storage/save.hpp>
#include <torchtap/views/explorer/explorer.hpp>
#include <torchtap/views/report/report.hpp>
#include <torchtap/views/report/save.hpp>
#include <torchtap/views/trace/log_forward_pass.hpp>

namespace {

namespace nn = torch::nn;
namespace views = torchtap::views;

/// relu(x W + b), whose values are whole numbers and halves.
nn::Sequential small_net() {
  nn::Sequential net({{"fc", nn::AnyModule(nn::Linear(2, 3))}, {"relu", nn::AnyModule(nn::ReLU())}});
  const torch::NoGradGuard guard;
  net->named_parameters()["fc.weight"].copy_(torch::tensor({{1., -1.}, {2., 0.}, {0., 3.}}));
  net->named_parameters()["fc.bias"].copy_(torch::tensor({0.5, -1., 0.}));
  return net;
}

void write(const std::string& folder) {
  const at::Tensor x = torch::tensor({{1.F, 2.F}, {3.F, -4.F}});
  nn::Sequential net = small_net();
  views::trace::log_forward_pass(*net, {x}, views::trace::TraceOptions().save(views::trace::Save::all))
      .save(folder + "/trace", torchtap::storage::SaveOptions().mkdir(true));
  {
    views::report::Report report(*net);
    for (int repeat = 0; repeat < 2; ++repeat) {
      auto recording = report.record();
      const at::Tensor loss = (net->forward(x) / 0).sum();  // which is infinite
      recording.phase(views::report::Phase::backward);
      loss.backward();
    }
    views::report::save(report.results(), folder + "/report.json");
  }
  net->zero_grad();
  views::explorer::Explorer explorer(
      views::explorer::ExplorerOptions().every(1).save(folder + "/run").name("written"));
  explorer.attach(*net);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor loss = net->forward(x * (step + 1)).sum();
    loss.backward();
    explorer.scalar("loss", loss);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_view_formats FOLDER\n");
    return 2;
  }
  try {
    write(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
