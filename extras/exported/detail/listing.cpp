// Reads the list of taps in a package.
#include <cereal/archives/json.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <sstream>
#include <stdexcept>

#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/exported/detail/listing.hpp>

namespace torchtap::exported::detail {
namespace {

constexpr std::int64_t kFormat = 1;

}  // namespace

template <class Archive>
void serialize(Archive& archive, Tapped& module) {
  archive(cereal::make_nvp("path", module.path), cereal::make_nvp("aliases", module.aliases),
          cereal::make_nvp("type", module.type), cereal::make_nvp("qualified_type", module.qualified_type),
          cereal::make_nvp("leaf", module.leaf), cereal::make_nvp("calls", module.calls),
          cereal::make_nvp("inputs", module.inputs), cereal::make_nvp("outputs", module.outputs),
          cereal::make_nvp("replaceable", module.replaceable));
}

template <class Archive>
void serialize(Archive& archive, Input& input) {
  archive(cereal::make_nvp("name", input.name), cereal::make_nvp("dtype", input.dtype),
          cereal::make_nvp("shape", input.shape));
}

namespace {

/// Optional, so that packages that were made without devices can be read.
void read_devices(cereal::JSONInputArchive& archive, std::vector<Input>& inputs) {
  std::vector<std::string> devices;
  try {
    archive(cereal::make_nvp("devices", devices));
  } catch (const cereal::Exception&) {
    return;
  }
  if (devices.size() != inputs.size()) throw std::invalid_argument("it has not one device for each input");
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].device = devices[i];
}

}  // namespace

Listing parse_listing(const std::string& json, const std::string& file) {
  Listing listing;
  std::int64_t format = 0;
  try {
    std::istringstream stream(json);
    cereal::JSONInputArchive archive(stream);
    archive(cereal::make_nvp("format", format));
    if (format == kFormat) {
      archive(cereal::make_nvp("type", listing.type),
              cereal::make_nvp("qualified_type", listing.qualified_type),
              cereal::make_nvp("modules", listing.modules), cereal::make_nvp("inputs", listing.inputs));
      read_devices(archive, listing.inputs);
    }
  } catch (const std::exception& error) {
    TORCH_CHECK_VALUE(false, "exported::Model: the list of taps in \"", file, "\" is damaged: ", error.what(),
                      ". Compile the model again with torchtap.export.compile.");
  }
  const std::string unreadable = base::unreadable_format(format, kFormat);
  TORCH_CHECK_VALUE(unreadable.empty(), "exported::Model: cannot read the list of taps in \"", file,
                    "\": ", unreadable, ", or compile the model with the torchtap.export of this one.");
  return listing;
}

}  // namespace torchtap::exported::detail
