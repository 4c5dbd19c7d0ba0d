// Saves and loads one value in one `.pt` file.
#include <torchtap/base/staging.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/pt.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::storage {

void save_value(const std::string& path, const core::Value& value, const SaveOptions& options) {
  const std::string call = "save_value";
  detail::check_value(call, "the value", value);
  const base::Target target = base::resolve(call, path, options.mkdir());
  try {
    base::check_replaceable(call, target.path(), options.overwrite());
    base::sweep(target);
    base::Staging staging(call, target);
    base::OutputFile file(call, staging.path(), staging.duplicate());
    detail::write_value(file, value);
    file.close(options.sync());
    staging.put(options.overwrite(), options.sync());
  } catch (...) {
    target.undo();
    throw;
  }
}

core::Value load_value(const std::string& path, const LoadOptions& options) {
  return detail::read_value(base::InputFile::open("load_value", path), options);
}

}  // namespace torchtap::storage
