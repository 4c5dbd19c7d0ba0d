#pragma once

/// A model whose rows say which they are, and what is kept of them by hand.

#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/rows/rows.hpp>
#include <torchtap/storage/recover.hpp>

#include "tests/support.hpp"

namespace rows_test {

namespace tap = torchtap;
using Folder = torchtap_test::TemporaryDirectory;
using tap::core::Context;
using tap::recorders::ForwardOutput;
using tap::recorders::RecorderOptions;
using tap::rows::Rows;
using tap::storage::load;
using tap::storage::SpoolOptions;
using torchtap_test::contains;
using torchtap_test::error_of;

/// Adds 1 to element 1 of each row.
struct StepImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor step = at::zeros({x.size(-1)}, x.options());
    step[1] = 1;
    return x + step;
  }
};
TORCHTAP_MODULE(Step);

/// `twice` runs two times, `rare` in some forwards.
struct NetImpl : torch::nn::Module {
  Step first = register_module("first", Step());
  Step twice = register_module("twice", Step());
  Step rare = register_module("rare", Step());
  Step last = register_module("last", Step());
  at::Tensor forward(const at::Tensor& x, bool all) {
    at::Tensor y = twice->forward(twice->forward(first->forward(x)));
    if (all) y = rare->forward(y);
    return last->forward(y);
  }
};
TORCHTAP_MODULE(Net);

/// Rows `[b, t, 6]` with the numbers from `first` on, in digits that bfloat16 holds.
inline at::Tensor numbered(std::int64_t first, std::int64_t b, std::int64_t t) {
  const at::Tensor x = at::zeros({b, t, 6});
  const at::Tensor id = at::arange(first, first + b * t, at::kLong).reshape({b, t});
  x.select(2, 0).copy_(id % 128);
  x.select(2, 2).copy_(id.floor_divide(128) % 128);
  x.select(2, 3).copy_(id.floor_divide(128 * 128));
  return x;
}
/// The numbers of rows `[n, 6]`.
inline at::Tensor numbers_of(const at::Tensor& rows) {
  const at::Tensor x = rows.to(at::kLong);
  return x.select(1, 0) + x.select(1, 2) * 128 + x.select(1, 3) * (128 * 128);
}

inline SpoolOptions spooling() {
  return SpoolOptions().mkdir(true).sync(false);
}
inline RecorderOptions keeping(const std::string& directory, const SpoolOptions& how = spooling()) {
  return RecorderOptions().rows({0, 1}).where("mask").beside({"label", "id"}).spool(directory, how);
}

/// Runs the net and keeps by hand what a dump should have.
struct Run {
  struct Kept {
    std::vector<at::Tensor> rows, labels, ids;
    std::vector<std::array<std::int64_t, 3>> where;  // forward, call, place
  };
  Net net;
  std::map<std::string, Kept> kept;
  std::int64_t next = 0, forward_number = 0;

  void keep(const std::string& path, const at::Tensor& y, const at::Tensor& mask, const at::Tensor& labels,
            const at::Tensor& ids, std::int64_t call) {
    Kept& of = kept[path];
    for (std::int64_t b = 0; b < y.size(0); ++b) {
      for (std::int64_t t = 0; t < y.size(1); ++t) {
        if (!mask[b][t].item<bool>()) continue;
        of.rows.push_back(y[b][t]);
        of.labels.push_back(labels[b]);
        of.ids.push_back(ids[b][t]);
        of.where.push_back({forward_number, call, b * y.size(1) + t});
      }
    }
  }
  void forward(std::int64_t b, std::int64_t t, const at::Tensor& mask, bool all,
               at::ScalarType dtype = at::kFloat) {
    const at::Tensor x = numbered(next, b, t).to(dtype), labels = at::randint(0, 10, {b}, at::kLong),
                     ids = at::arange(next, next + b * t, at::kLong).reshape({b, t});
    next += b * t;
    {
      const Context named({{"mask", mask}, {"label", labels}, {"id", ids}});
      net->forward(x, all);
    }
    at::Tensor step = at::zeros({6}, x.options());
    step[1] = 1;
    keep("first", x + step, mask, labels, ids, 0);
    keep("twice", x + 2 * step, mask, labels, ids, 0);
    keep("twice", x + 3 * step, mask, labels, ids, 1);
    if (all) keep("rare", x + 4 * step, mask, labels, ids, 0);
    keep("last", x + (all ? 5 : 4) * step, mask, labels, ids, 0);
    ++forward_number;
  }
  /// Batches of unequal size, a last one of one, masks of all kinds.
  void all_kinds(at::ScalarType dtype = at::kFloat) {
    for (int i = 0; i < 12; ++i) {
      const std::int64_t b = i == 11 ? 1 : 1 + i % 4, t = i == 11 ? 1 : 3 + i % 3;
      at::Tensor mask = at::rand({b, t}).gt(0.4);
      if (i == 3) mask = at::zeros({b, t}, at::kBool);
      if (i == 5) mask = at::ones({b, t}, at::kBool);
      forward(b, t, mask, i % 3 == 0, dtype);
    }
  }
};

/// Whether a dump has what was kept by hand, whichever way it is read.
inline void check_alike(const std::string& directory, const Run& run) {
  const auto recording = load(directory);
  for (const auto& [path, of] : run.kept) {
    BOOST_TEST_CONTEXT(path) {
      const Rows rows(recording.at(path));
      const auto n = static_cast<std::int64_t>(of.rows.size());
      BOOST_TEST_REQUIRE(rows.size() == n);
      BOOST_TEST((rows.names() == std::vector<std::string>{"id", "label"}));
      BOOST_TEST(rows.slice(0, n).equal(at::stack(of.rows)));
      BOOST_TEST(rows.beside("label").equal(at::stack(of.labels)));
      BOOST_TEST(rows.beside("id").equal(at::stack(of.ids)));
      BOOST_TEST(numbers_of(rows.slice(0, n)).equal(rows.beside("id")));
      const at::Tensor some = at::randint(n, {100}, at::kLong);
      BOOST_TEST(rows.gather(some).equal(at::stack(of.rows).index_select(0, some)));
      BOOST_TEST(rows.beside("id", some).equal(at::stack(of.ids).index_select(0, some)));
      bool where = true, each = true;
      for (std::int64_t i = 0; i < n; ++i) {
        const auto got = rows.where(i);
        where = where && std::array<std::int64_t, 3>{got.forward, got.call, got.place} ==
                             of.where[static_cast<std::size_t>(i)];
        each = each && rows[i].equal(of.rows[static_cast<std::size_t>(i)]);
      }
      BOOST_TEST(where);
      BOOST_TEST(each);
    }
  }
}

}  // namespace rows_test
