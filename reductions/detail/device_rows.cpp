// Chooses the kernels that read a sample on a device, and lays out its rows for them.
#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <atomic>

#include <torchtap/reductions/detail/device_rows.hpp>
#include <torchtap/reductions/detail/intake.hpp>

namespace torchtap::reductions {
namespace {

std::atomic<extend::DeviceKernels*> in_use{nullptr};

}  // namespace

void extend::install(DeviceKernels* kernels) noexcept {
  in_use = kernels;
}

extend::DeviceKernels* extend::installed() noexcept {
  return in_use;
}

}  // namespace torchtap::reductions

namespace torchtap::reductions::detail {

DeviceKernels* kernels_for(const Rows& rows) {
  DeviceKernels* const kernels = installed();
  const bool plain = kernels != nullptr && !rows.view.is_cpu() && !rows.finite.defined() &&
                     rows.view.numel() != 0 && kernels->reads(rows.view);
  return plain ? kernels : nullptr;
}

DeviceRows device_rows(const Rows& rows) {
  const std::int64_t kept = c10::multiply_integers(rows.kept());
  const at::Tensor& view = rows.view;
  const auto folded = static_cast<std::int64_t>(rows.folded.size());
  // The kept dimensions may lie before, between or behind the folded ones.
  for (std::int64_t before = folded; before >= 0; --before) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < before; ++i) order.push_back(i);
    for (std::int64_t i = folded; i < view.dim(); ++i) order.push_back(i);
    for (std::int64_t i = before; i < folded; ++i) order.push_back(i);
    const at::Tensor memory = view.permute(order);
    if (!memory.is_contiguous()) continue;
    const std::int64_t outer =
        c10::multiply_integers(view.sizes().slice(0, static_cast<std::size_t>(before)));
    return {memory, outer, kept, rows.count / outer};
  }
  return {view.contiguous(), rows.count, kept, 1};
}

}  // namespace torchtap::reductions::detail
