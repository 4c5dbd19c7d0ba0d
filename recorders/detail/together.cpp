// Updates several sinks, all or none.
#include <c10/util/SmallVector.h>

#include <utility>

#include <torchtap/recorders/detail/together.hpp>

namespace torchtap::recorders::detail {

void update_together(c10::ArrayRef<Update> updates) {
  if (updates.size() == 1) return (*updates[0].sink)->update(*updates[0].sample);
  c10::SmallVector<Update, 2> sure;
  c10::SmallVector<Update, 2> unsure;
  for (const Update& each : updates) {
    ((*each.sink)->check(*each.sample) ? sure : unsure).push_back(each);
  }
  c10::SmallVector<std::unique_ptr<core::Sink>, 2> copies;
  for (std::size_t i = 1; i < unsure.size(); ++i) {
    copies.push_back((*unsure[i].sink)->clone());
    copies.back()->update(*unsure[i].sample);
  }
  if (!unsure.empty()) (*unsure[0].sink)->update(*unsure[0].sample);
  for (std::size_t i = 1; i < unsure.size(); ++i) unsure[i].sink->swap(copies[i - 1]);
  for (const Update& each : sure) (*each.sink)->update(*each.sample);
}

}  // namespace torchtap::recorders::detail
