#pragma once

namespace torchtap::views::report::detail {

/// The page without its data, which belongs in place of "<!--data-->". The build makes it of
/// views/report/page/ (views/report/CMakeLists.txt).
extern const char* const kPage;

}  // namespace torchtap::views::report::detail
