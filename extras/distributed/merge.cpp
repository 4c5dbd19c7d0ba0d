// Merges recorders and single reductions over ranks.
#include <utility>

#include <torchtap/distributed/detail/portion.hpp>
#include <torchtap/distributed/detail/protocol.hpp>
#include <torchtap/distributed/merge.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::distributed {

void merge_ranks(recorders::Recorder& recorder, const Group& group, const MergeRanksOptions& options) {
  detail::Offer offer;
  offer.present = true;
  std::vector<detail::Portion> counts;  // of the portions, without their data
  try {
    const auto& reduction = recorder.options().reduction();
    offer.kind = recorder.kind();
    offer.blank = reduction == nullptr ? nullptr : reduction->clone();
    offer.portions = detail::portions_of(recorder);
    for (const detail::Portion& portion : offer.portions) {
      detail::Portion count;
      count.samples = portion.samples;
      count.not_recorded = portion.not_recorded;
      counts.push_back(std::move(count));
    }
  } catch (const std::exception& error) {  // the other ranks get the reason
    offer.portions.clear();
    offer.refusal = detail::text_of(error);
  }
  offer.ready = [&]() -> std::string {
    const std::string changed = detail::changed_since(recorder, counts);
    return changed.empty()
               ? ""
               : changed + " recorded while ranks merged; call merge_ranks when the model does not run";
  };
  offer.put = [&](std::vector<detail::Portion> merged) { detail::put(recorder, std::move(merged)); };
  detail::Protocol(group, options, std::move(offer)).run();
}

void merge_ranks(const Group& group, const MergeRanksOptions& options) {
  detail::Protocol(group, options, {}).run();
}

void refuse_ranks(const std::string& why, const Group& group, const MergeRanksOptions& options) noexcept {
  try {
    detail::Offer offer;
    offer.present = true;
    offer.refusal = why.empty() ? "it gave no reason" : why;
    detail::Protocol(group, options, std::move(offer)).run();
  } catch (...) {  // the caller has its own error
  }
}

std::unique_ptr<core::Sink> detail::merged_sink(const core::Sink& sink, const Group& group,
                                                const MergeRanksOptions& options) {
  Offer offer;
  offer.present = true;
  offer.lent = &sink;
  offer.kind = "reduction";
  std::unique_ptr<core::Sink> merged;
  try {
    offer.blank = sink.fresh();
    Portion portion;
    portion.id.kind = offer.kind;
    portion.samples = sink.count();
    offer.portions.push_back(std::move(portion));
  } catch (const std::exception& error) {
    offer.portions.clear();
    offer.refusal = text_of(error);
  }
  offer.put = [&](std::vector<Portion> portions) { merged = std::move(portions.at(0).slots.at(0).sink); };
  Protocol(group, options, std::move(offer)).run();
  return merged;
}

}  // namespace torchtap::distributed
