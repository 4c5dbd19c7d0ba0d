// Takes rows out of tensors, and appends them with the lines that say which calls they are of.
#include <ATen/Functions.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/rows/detail/keep_rows.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::rows::detail {
namespace {

/// A tensor with its row dimensions in front, and their sizes.
struct Arranged {
  at::Tensor tensor;
  at::IntArrayRef sizes;
};

Arranged arranged(const at::Tensor& sample, const std::vector<std::int64_t>& dimensions, const Slots& slots) {
  std::vector<std::int64_t> order;
  for (const std::int64_t dimension : dimensions) {
    const std::int64_t place = dimension < 0 ? dimension + sample.dim() : dimension;
    if (place < 0 || place >= sample.dim() || std::find(order.begin(), order.end(), place) != order.end()) {
      core::unfit<c10::ValueError>(
          c10::str(slots.describe(), ": rows(", at::IntArrayRef(dimensions), ") of a tensor of the shape ",
                   sample.sizes(), ": it has no such dimensions, or one twice; leave this module out."));
    }
    order.push_back(place);
  }
  const std::size_t rows = order.size();
  for (std::int64_t i = 0; i < sample.dim(); ++i) {
    if (std::find(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(rows), i) ==
        order.begin() + static_cast<std::ptrdiff_t>(rows))
      order.push_back(i);
  }
  const at::Tensor tensor = std::is_sorted(order.begin(), order.end()) ? sample : sample.permute(order);
  return {tensor, tensor.sizes().slice(0, rows)};
}

}  // namespace

KeepRows::KeepRows(Slots& slots, Prepare& prepare, std::shared_ptr<Dump> dump, storage::Spool::Stream& rows)
    : Taker(slots), prepare_(prepare), dump_(std::move(dump)), rows_(rows) {
  const auto before = rows_.before();
  if (before.samples == 0) return;
  form_.take(before, slots_.describe());
  index_ = &dump_->spool().add({slots_.id.path, {}, kFormat, slots_.id.kind + ".calls"});
  TORCH_CHECK_VALUE(index_->before().samples > 0, slots_.describe(), ": the recording at \"",
                    dump_->spool().directory(), "\" has ", before.samples,
                    " samples of it that were kept without rows(); choose another directory.");
  index_->complete_with(rows_);
}

std::vector<hooks::Handle> KeepRows::companions(const std::shared_ptr<Record>& /*record*/,
                                                const model::ModuleRef& module) {
  auto forwards = std::make_shared<const OpenForwards>(module);
  const std::lock_guard lock(mutex_);
  forwards_ = std::move(forwards);
  return {};
}

Call KeepRows::call_of(const hooks::Event& event, at::IntArrayRef sizes) {
  if (recorders::traits(slots_.kind).gradients)
    return {dump_->of_gradient(this, event.call_index(), sizes), event.call_index()};
  std::shared_ptr<const OpenForwards> forwards;
  {
    const std::lock_guard lock(mutex_);
    forwards = forwards_;
  }
  return forwards->of(*dump_, this, event, sizes);
}

Taker::Took KeepRows::take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors,
                           std::size_t /*first_slot*/) {
  const Prepare::Turn turn(prepare_);
  const at::Tensor sample = prepare_(tensors[0]);
  check(sample);
  const base::RecordingMode quiet;
  const Arranged rows = arranged(sample, dump_->asked().dimensions, slots_);
  const Call call = call_of(event, rows.sizes);
  Group& group = *call.group;
  if (!group.why_not.empty()) core::unfit<c10::ValueError>(slots_.describe() + ": " + group.why_not);
  std::vector<std::int64_t> flat{c10::multiply_integers(rows.sizes)};
  const at::IntArrayRef row = rows.tensor.sizes().slice(rows.sizes.size());
  flat.insert(flat.end(), row.begin(), row.end());
  at::Tensor kept = rows.tensor.reshape(flat);
  if (group.chosen().defined()) kept = kept.index_select(0, group.chosen().to(kept.device()));
  const std::lock_guard lock(slots_.mutex);
  check_form(kept);
  return append(group, call.number, kept);
}

void KeepRows::check(const at::Tensor& sample) const {
  if (!sample.defined()) {
    core::unfit<c10::ValueError>(slots_.describe() +
                                 ": the module was given no tensor, so there are no rows.");
  }
  TORCH_CHECK_TYPE(!sample.is_quantized(), slots_.describe(), ": the tensor is quantized, of dtype ",
                   sample.scalar_type(),
                   ", which files for torch.load(weights_only=True) cannot hold; record its values with "
                   "RecorderOptions().transform(torchtap::recorders::dequantized).");
  if (!base::is_strided(sample)) {
    core::unfit<c10::TypeError>(
        slots_.describe() + ": files cannot hold rows of this tensor: " + base::instead_of_strided(sample));
  }
  if (!storage::can_hold(sample)) {
    core::unfit<c10::TypeError>(c10::str(slots_.describe(), ": files cannot hold dtype ",
                                         sample.scalar_type(), " on ", sample.device(),
                                         "; convert it with dtype() or transform()."));
  }
}

/// Called under the lock of the slots. The form of all rows is that of the first ones.
void KeepRows::check_form(const at::Tensor& rows) {
  const at::IntArrayRef row = rows.sizes().slice(1);
  if (!form_.known()) {
    form_.dtype = rows.scalar_type();
    form_.sizes = row.vec();
  }
  if (form_.dtype == rows.scalar_type() && at::IntArrayRef(form_.sizes) == row) return;
  core::unfit<c10::ValueError>(c10::str(slots_.describe(), ": a row is ", rows.scalar_type(),
                                        " of the shape ", row, ", and the first ones were ", form_.dtype,
                                        " of ", at::IntArrayRef(form_.sizes),
                                        "; one dtype and shape can be kept: see dtype() and transform()."));
}

/// Called under the lock of the slots. All of them, or none.
Taker::Took KeepRows::append(Group& group, std::int64_t call, const at::Tensor& rows) {
  const std::int64_t bytes = static_cast<std::int64_t>(rows.nbytes()) + dump_->bytes_of(group);
  if (!dump_->spool().admit(rows_, bytes)) return Took::nothing;
  dump_->write(group, rows_);
  if (index_ == nullptr) {  // behind the columns, which a flush so writes first
    index_ = &dump_->spool().add({slots_.id.path, {}, kFormat, slots_.id.kind + ".calls"});
    index_->complete_with(rows_);
  }
  const at::Tensor line = line_of(dump_->run(), group.forward(), group.number, call, group.rows());
  const std::int64_t before = rows_.appended();
  bool handed = false;
  try {
    handed = rows_.append_stack(rows);
    index_->append(line);
  } catch (...) {  // no memory: the rows that were appended are of no call
    if (const std::int64_t stray = rows_.appended() - before; stray > 0)
      index_->append(line_of(0, 0, -1, 0, stray));
    throw;
  }
  if (handed) {  // so that the lines of rows on the disk are there, too
    dump_->hand_over();
    index_->hand_over();
  }
  slots_.recorded += group.rows();
  slots_.samples.store(slots_.samples.load() + group.rows());
  calls_.fetch_add(1, std::memory_order_relaxed);
  return Took::sample;
}

void Kept::check(const std::string& kind, const recorders::RecorderOptions& options) const {
  constexpr const char* kRows = ": RecorderOptions::rows ";
  TORCH_CHECK_VALUE(!asked.dimensions.empty(), kind,
                    ": RecorderOptions::where and beside are about rows; call "
                    "rows(), such as rows({0}) for one row a sample of the batch.");
  TORCH_CHECK_VALUE(options.reduction() == nullptr, kind, kRows,
                    "keeps rows and reduction() keeps none; set one of "
                    "them.");
  TORCH_CHECK_VALUE(!options.memory_budget().has_value(), kind, kRows,
                    "writes rows to disk at once, so a memory_budget() has no use; call spool(directory).");
  TORCH_CHECK_VALUE(!options.spool_directory().empty(), kind, kRows,
                    "writes rows to disk and needs a directory; call spool(directory), and "
                    "storage::SpoolOptions().mkdir(true) to make it.");
  TORCH_CHECK_VALUE(!options.all_tensors(), kind, kRows,
                    "keeps the rows of one tensor, and all_tensors() asks for all; choose one by slot(), and "
                    "attach a recorder with a directory of its own for each.");
  TORCH_CHECK_VALUE(kind != "BackwardParameter", kind, kRows,
                    "keeps rows of a forward, and a parameter's gradient has none; use BackwardOutput or "
                    "BackwardInput.");
}

std::unique_ptr<Taker> Kept::taker(Slots& slots, Prepare& /*prepare*/,
                                   std::unique_ptr<Fold> /*folds*/) const {
  TORCH_CHECK_VALUE(false, slots.describe(), ": rows go to disk; call spool(directory).");
}

std::unique_ptr<Taker> Kept::spooling_taker(Slots& slots, Prepare& prepare, storage::Spool& spool,
                                            storage::Spool::Stream& stream) const {
  std::shared_ptr<Dump> dump;
  {
    const std::lock_guard lock(mutex_);
    auto& known = dumps_[&spool];
    dump = known.lock();
    if (dump == nullptr) known = dump = std::make_shared<Dump>(spool, asked);
  }
  return std::make_unique<KeepRows>(slots, prepare, std::move(dump), stream);
}

}  // namespace torchtap::rows::detail
