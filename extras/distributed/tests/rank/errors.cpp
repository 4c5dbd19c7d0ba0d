// Scenario: everything that ranks cannot merge, one after the other in one group, which works afterwards.
#include <ATen/Functions.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "support.hpp"

namespace rank_test {
namespace {

using namespace torchtap::recorders;
using namespace torchtap::reductions;
using tap::distributed::Group;

/// A reduction whose state has another version on some ranks.
class Versioned {
 public:
  explicit Versioned(std::uint32_t version = 1) : version_(version) {}
  void update(const at::Tensor&) { ++count_; }
  void merge(const Versioned& other) { count_ += other.count_; }
  std::int64_t count() const { return count_; }
  tap::core::Results results() const { return {{"count", at::scalar_tensor(count_, at::kLong)}}; }
  std::string describe() const { return "Versioned"; }
  template <class Archive>
  void serialize(Archive& archive) {
    tap::core::state_version(archive, "Versioned", version_);
    archive(count_);
  }

 private:
  std::uint32_t version_;
  std::int64_t count_ = 0;
};

/// A reduction that cannot be saved.
class Unsaved {
 public:
  void update(const at::Tensor&) { ++count_; }
  void merge(const Unsaved& other) { count_ += other.count_; }
  std::int64_t count() const { return count_; }
  tap::core::Results results() const { return {}; }

 private:
  std::int64_t count_ = 0;
};

class Errors {
 public:
  Errors() : group_(make_group(std::chrono::seconds(60))), rank_(group_.rank()) {}

  void run() {
    attempt("recipe", RecorderOptions().reduction(rank_ == 1 ? parse("mean") : parse("moments")));
    attempt("configuration", RecorderOptions().reduction(Histogram(HistogramOptions(rank_ == 2 ? 32 : 64))));
    attempt("shape", RecorderOptions().reduction(Moments()), rank_ == 2 ? 5 : 4);
    attempt("shape-of-last", RecorderOptions().reduction(Moments()), rank_ == 2 ? 5 : 4, {}, rank_ != 0);
    attempt("version", RecorderOptions().reduction(Versioned(rank_ == 1 ? 2 : 1)));
    attempt("unsaved", RecorderOptions().reduction(Unsaved()));
    attempt("keeps", rank_ == 1 ? RecorderOptions() : RecorderOptions().reduction(Moments()));
    attempt("kept", RecorderOptions());
    attempt("too-many", RecorderOptions(), 4, limits().samples(100));
    attempt("options", RecorderOptions().reduction(Moments()), 4, limits().everywhere(rank_ != 2));
    attempt("options-root", RecorderOptions().reduction(Moments()), 4, limits().root(rank_ == 2 ? 1 : 0));
    attempt("options-order", RecorderOptions().reduction(Moments()), 4,
            limits().order(rank_ == 1 ? tap::distributed::Order::tree : tap::distributed::Order::ranks));
    without_recorder();
    attempt("spooled", rank_ == 2
                           ? RecorderOptions().spool(variable("RANKS_FILE") + ".spool",
                                                     tap::storage::SpoolOptions().mkdir(true).sync(false))
                           : RecorderOptions());
    // The merge itself throws, on the root: 3 samples are no multiple of 2.
    attempt("in-merge", RecorderOptions().reduction(every(2, Mean())));
    by_hand();
    kind();
    modules();
    refused();
    no_root();
    wrong_arguments();
    works();
  }

 private:
  static tap::distributed::MergeRanksOptions limits() {
    return tap::distributed::MergeRanksOptions().timeout(std::chrono::seconds(60));
  }

  std::string thrown(const std::function<void()>& call) {
    try {
      call();
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    } catch (const c10::Error& error) {
      return c10::str("NOT A VALUE ERROR: ", error.what_without_backtrace());
    }
    return "NO ERROR";
  }

  /// Merges and says the error, and whether anything was changed.
  void report(const std::string& name, Recorder& recorder,
              const tap::distributed::MergeRanksOptions& options) {
    const auto values = [&] {
      std::ostringstream text;
      for (const auto& one : recorder) text << one.path() << one.samples() << one.value();
      return text.str();
    };
    const std::string before = values();
    const std::string error = thrown([&] { tap::distributed::merge_ranks(recorder, group_, options); });
    say(name, " ", error);
    say(name, "-changed ", values() == before ? "no" : "YES");
  }

  void attempt(const std::string& name, const RecorderOptions& how, std::int64_t width = 4,
               const tap::distributed::MergeRanksOptions& options = limits(), bool data = true) {
    torch::NoGradGuard no_grad;
    torch::nn::Sequential net(
        {{"first", torch::nn::Linear(width, 3)}, {"layer", torch::nn::Linear(3, width)}});
    ForwardOutput recorder(how);
    recorder.attach(net, tap::selectors::names("layer"));
    for (int i = 0; data && i < 3; ++i) net->forward(at::full({width}, 0.5 * i + rank_));
    report(name, recorder, options);
  }

  void by_hand() {
    torch::NoGradGuard no_grad;
    torch::nn::Sequential net({{"layer", torch::nn::Linear(4, 3)}});
    ForwardOutput recorder{Moments()};
    recorder.attach(net, tap::selectors::names("layer"));
    net->forward(at::ones({4}));
    if (rank_ == 1) recorder.apply([](const at::Tensor& x) { return x * 2; });
    report("by-hand", recorder, limits());
  }

  void kind() {
    torch::nn::Sequential net({{"layer", torch::nn::Linear(4, 3)}});
    const auto recorder =
        make(rank_ == 1 ? "ForwardInput" : "ForwardOutput", RecorderOptions().reduction(Count()));
    recorder->attach(*net, tap::selectors::names("layer"));
    report("kind", *recorder, limits());
  }

  void modules() {
    torch::nn::Sequential net({{rank_ == 2 ? "other" : "layer", torch::nn::Linear(4, 3)}});
    ForwardOutput recorder{Count()};
    recorder.attach(net, tap::selectors::leaves());
    report("modules", recorder, limits().same_modules(true));
  }

  void refused() {
    if (rank_ == 1) {
      tap::distributed::refuse_ranks("the data set is gone", group_, limits());
      return;
    }
    attempt("refused", RecorderOptions().reduction(Moments()));
  }

  void no_root() {
    if (rank_ == 0) {
      say("no-root ", thrown([&] { tap::distributed::merge_ranks(group_, limits()); }));
      return;
    }
    attempt("no-root", RecorderOptions().reduction(Moments()));
  }

  /// Ranks without a recorder have options, too.
  void without_recorder() {
    if (rank_ != 1) return attempt("options-without", RecorderOptions().reduction(Moments()));
    say("options-without ",
        thrown([&] { tap::distributed::merge_ranks(group_, limits().everywhere(false)); }));
  }

  /// Found before anything is sent.
  void wrong_arguments() {
    Moments moments;
    say("wrong-root ", thrown([&] { tap::distributed::merge_ranks(moments, group_, limits().root(9)); }));
    say("wrong-timeout ", thrown([&] {
          tap::distributed::merge_ranks(moments, group_, limits().timeout(std::chrono::milliseconds(0)));
        }));
  }

  void works() {
    Moments moments;
    moments.update(at::full({3}, static_cast<double>(rank_)));
    tap::distributed::merge_ranks(moments, group_, limits());
    say("works ", moments.count(), " ", moments.results().at("mean")[0].item<double>());
  }

  Group group_;
  int rank_;
};

}  // namespace

void add_errors(std::map<std::string, Scenario>& all) {
  all["errors"] = [] { Errors().run(); };
  all["environment"] = [] {
    const Group group = make_group(std::chrono::seconds(5));
    say("rank ", group.rank(), " of ", group.size());
    Sum sum;
    sum.update(at::ones({2}) * (group.rank() + 1));
    tap::distributed::merge_ranks(sum, group);
    say("sum ", sum.results().at("value")[0].item<double>());
  };
}

}  // namespace rank_test
