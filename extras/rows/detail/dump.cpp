// Numbers forwards and groups, and writes the columns beside rows.
#include <ATen/Functions.h>

#include <algorithm>
#include <random>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/rows/detail/dump.hpp>
#include <torchtap/rows/texts.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::rows::detail {
namespace {

constexpr std::ptrdiff_t kForwardsOfGradients = 16;  // of a thread, whose gradients may still come
constexpr std::size_t kOfAllThreads = 256;

std::int64_t random_run() {
  std::random_device source;
  const std::uint64_t bits = (std::uint64_t{source()} << 32) | source();
  return static_cast<std::int64_t>(bits >> 1) | 1;  // positive
}

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

void Form::take(const storage::Spool::Stream::Before& before, const std::string& whose) {
  if (before.samples == 0) return;
  const auto known = storage::dtype_of(before.dtype);
  const bool alike =
      std::all_of(before.shape.begin(), before.shape.end(), [](auto size) { return size >= 0; });
  TORCH_CHECK_VALUE(known.has_value() && alike, whose, ": the recording that is continued has ",
                    before.samples,
                    " samples of different shapes or dtypes, which are no rows; choose another directory.");
  dtype = *known;
  sizes = before.shape;
}

at::Tensor line_of(std::int64_t run, std::int64_t forward, std::int64_t group, std::int64_t call,
                   std::int64_t rows) {
  const std::int64_t line[kNumbers]{run, forward, group, call, rows};
  return at::tensor(at::ArrayRef<std::int64_t>(line), at::kLong);
}

Dump::Dump(storage::Spool& spool, Asked asked)
    : spool_(spool), asked_(std::move(asked)), run_(random_run()), serial_(next_serial()) {
  if (!asked_.mask.empty()) columns_.push_back({"place", "Place", -1, {}, nullptr, nullptr});
  for (std::size_t i = 0; i < asked_.beside.size(); ++i)
    columns_.push_back({asked_.beside[i], "Beside", static_cast<std::int64_t>(i), {}, nullptr, nullptr});
}

std::shared_ptr<Group> Dump::make(Named named, at::IntArrayRef sizes, std::int64_t forward) {
  auto group = std::make_shared<Group>(asked_, std::move(named), sizes.vec(), forward);
  const std::lock_guard lock(mutex_);
  group->number = groups_++;
  for (Column& column : columns_) {
    if (group->why_not.empty()) group->why_not = misfit(column, *group);
  }
  return group;
}

std::shared_ptr<Group> Dump::of_gradient(const void* module, std::int64_t call, at::IntArrayRef sizes) {
  Named named(asked_);
  std::int64_t forward = -1;
  {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(of_gradients_.rbegin(), of_gradients_.rend(), [&](const OfGradients& one) {
          return one.named == named && one.seen.count({module, call}) == 0;
        });
    OfGradients* of = found == of_gradients_.rend() ? nullptr : &*found;
    if (of == nullptr) {
      // A thread that the system lets wait in its backward keeps its forward, however many others go by.
      const auto here = [](const OfGradients& one) { return one.thread == std::this_thread::get_id(); };
      if (std::count_if(of_gradients_.begin(), of_gradients_.end(), here) >= kForwardsOfGradients)
        of_gradients_.erase(std::find_if(of_gradients_.begin(), of_gradients_.end(), here));
      if (of_gradients_.size() >= kOfAllThreads) of_gradients_.pop_front();
      of =
          &of_gradients_.emplace_back(OfGradients{named, next_forward(), std::this_thread::get_id(), {}, {}});
    }
    OfGradients& one = *of;
    one.seen.insert({module, call});
    forward = one.forward;
    for (const auto& group : one.groups) {
      if (group->is_of(named, sizes)) return group;
    }
  }
  // Two threads may make one each: then the columns have both.
  auto group = make(std::move(named), sizes, forward);
  const std::lock_guard lock(mutex_);
  for (OfGradients& one : of_gradients_) {
    if (one.forward == forward) one.groups.push_back(group);
  }
  return group;
}

const at::Tensor& Dump::values_of(const Column& column, const Group& group) const {
  return column.name < 0 ? group.chosen() : group.beside(static_cast<std::size_t>(column.name));
}

/// Called under the lock. Why the values of a group do not fit the column; fixes its form if they are the
/// first.
std::string Dump::misfit(Column& column, const Group& group) const {
  const at::Tensor& values = values_of(column, group);
  const at::IntArrayRef sizes = values.sizes().slice(1);
  if (!column.form.known()) {
    column.form.dtype = values.scalar_type();
    column.form.sizes = sizes.vec();
  }
  const bool text = is_texts(values) && column.form.sizes.size() == 1 && sizes.size() == 1;
  const bool alike =
      column.form.dtype == values.scalar_type() &&
      (at::IntArrayRef(column.form.sizes) == sizes || (text && sizes[0] < column.form.sizes[0]));
  if (alike) return "";
  return c10::str("beside(\"", column.path, "\"): a value is ", values.scalar_type(), " of the shape ", sizes,
                  ", and the first ones were ", column.form.dtype, " of ", at::IntArrayRef(column.form.sizes),
                  text ? "; give the first texts the largest width, rows::texts(texts, width)." : ".");
}

/// Called under the lock. Adds the entries of a column.
void Dump::open(Column& column, storage::Spool::Stream& leader) {
  storage::Spool::Stream& values = spool_.add({column.path, {}, "", column.kind});
  Form before;
  before.take(values.before(), "recorders::RecorderOptions::beside(\"" + column.path + "\")");
  TORCH_CHECK_VALUE(
      !before.known() || (before.dtype == column.form.dtype && before.sizes == column.form.sizes),
      "recorders::RecorderOptions::beside(\"", column.path, "\"): the dump that is continued has ",
      before.dtype, " of the shape ", at::IntArrayRef(before.sizes), ", and now there is ", column.form.dtype,
      " of ", at::IntArrayRef(column.form.sizes), "; choose another directory or another name.");
  column.calls = &spool_.add({column.path, {}, kFormat, column.kind + ".calls"});
  column.values = &values;
  values.complete_with(leader);
  column.calls->complete_with(leader);
}

std::int64_t Dump::bytes_of(const Group& group) const {
  const std::lock_guard lock(mutex_);
  if (group.written) return 0;
  std::int64_t bytes = 0;
  for (const Column& column : columns_) bytes += static_cast<std::int64_t>(values_of(column, group).nbytes());
  return bytes;
}

void Dump::write(Group& group, storage::Spool::Stream& leader) {
  const std::lock_guard lock(mutex_);
  if (group.written) return;
  for (Column& column : columns_) {
    if (column.values == nullptr) open(column, leader);
  }
  for (const Column& column : columns_) {
    at::Tensor values = values_of(column, group);
    if (values.dim() == 2 && !column.form.sizes.empty() && values.size(1) < column.form.sizes[0])  // texts
      values = at::constant_pad_nd(values, {0, column.form.sizes[0] - values.size(1)}, 0);
    column.values->append_stack(values);
    column.calls->append(line_of(run_, group.forward(), group.number, 0, group.rows()));
  }
  group.written = true;
  collected_ = true;
}

void Dump::hand_over() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(collected_, false)) return;
  for (const Column& column : columns_) {
    if (column.values == nullptr) continue;
    column.values->hand_over();
    column.calls->hand_over();
  }
}

}  // namespace torchtap::rows::detail
