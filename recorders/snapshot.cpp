// The state of a whole recorder in one file or stream, from which it resumes.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/base/write_file.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/detail/snapshot_format.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::recorders {

void Recorder::snapshot(std::ostream& stream) const {
  check_not_moved("snapshot");
  std::ostringstream payload;
  {
    core::OutputArchive archive(payload);
    const auto records = live();
    archive(kind(), static_cast<std::uint64_t>(records.size()));
    for (const auto& entry : records) entry.second->data("snapshot").save(entry.second->slots_of(), archive);
  }
  detail::write_snapshot(stream, payload.str());
  stream.flush();
  TORCH_CHECK(stream.good(), "recorders::", kind(),
              "::snapshot: the stream could not be written; nothing recorded was lost.");
}

void Recorder::restore(std::istream& stream) {
  check_not_moved("restore");
  std::vector<detail::RecordData> restored;
  const auto records = live();
  try {
    detail::SnapshotReader snapshot(detail::read_snapshot("recorders::" + kind() + "::restore", stream));
    const std::string their_kind = snapshot.text();
    const std::uint64_t count = snapshot.number();
    TORCH_CHECK_VALUE(their_kind == kind(), "restore: the snapshot is of a ", their_kind, ", this is a ",
                      kind(), ".");
    TORCH_CHECK_VALUE(count == records.size(), "restore: the snapshot has ", count,
                      " subrecorders, this recorder has ", records.size(),
                      "; attach to the same modules first.");
    for (const auto& entry : records) restored.push_back(entry.second->load(snapshot));
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception&) {  // cereal::Exception
    detail::bad_snapshot("recorders::" + kind() + "::restore", "it claims more than it holds; it is damaged");
  }
  for (std::size_t i = 0; i < records.size(); ++i) records[i].second->put(std::move(restored[i]));
}

void Recorder::snapshot(const std::string& file) const {
  check_not_moved("snapshot");  // before a file is made
  base::write_file("recorders::" + kind() + "::snapshot", file,
                   [&](std::ostream& stream) { snapshot(stream); });
}

void Recorder::restore(const std::string& file) {
  check_not_moved("restore");
  std::ifstream stream(file, std::ios::binary);
  TORCH_CHECK_VALUE(stream.good(), "recorders::", kind(), "::restore: cannot open \"", file,
                    "\": ", std::strerror(errno), ".");
  try {
    restore(stream);
  } catch (c10::Error& error) {
    error.add_context(c10::str("while reading \"", file, "\""));
    throw;
  }
}

}  // namespace torchtap::recorders
