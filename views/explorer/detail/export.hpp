#pragma once

// The page and its data in one file.

#include <string>

#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {

/// All answers that the page may ask for, as one JSON object. Nothing in it can end a <script>.
std::string export_json(const Runs& runs);

/// Throws `c10::Error` if the library was built without the page, or if the file cannot be written. The file
/// appears whole or not at all.
void export_page(const Runs& runs, const std::string& file);

std::string base64(const std::string& bytes);

}  // namespace torchtap::views::explorer::detail
