#include "text.hpp"

namespace torchtap::tools::pictures {
namespace {

constexpr std::size_t kColumns = 5, kRows = 7;

// The characters from ' ' to '~' have 5 x 7 pixels each: a letter for each row, from '0' for 00000 to 'V' for
// 11111.
// clang-format off
constexpr char kFont[] =
    "0000000" "4444404" "AA00000" "AAVAVAA" "4FKE5U4" "OP248J3" "CIK8LID" "4400000" "2488842" "8422248" "04LEL40"
    "044V440" "0000C48" "000V000" "00000CC" "01248G0" "EHJLPHE" "4C4444E" "EH1248V" "V2421HE" "26AIV22" "VGU11HE"
    "68GUHHE" "V124888" "EHHEHHE" "EHHF12C" "0CC0CC0" "0CC0C48" "248G842" "00V0V00" "8421248" "EH12404" "EH1DLLE"
    "EHHVHHH" "UHHUHHU" "EHGGGHE" "SIHHHIS" "VGGUGGV" "VGGUGGG" "EHGNHHF" "HHHVHHH" "E44444E" "72222IC" "HIKOKIH"
    "GGGGGGV" "HRLLHHH" "HHPLJHH" "EHHHHHE" "UHHUGGG" "EHHHLID" "UHHUKIH" "FGGE11U" "V444444" "HHHHHHE" "HHHHHA4"
    "HHHLLLA" "HHA4AHH" "HHHA444" "V1248GV" "E88888E" "0G84210" "E22222E" "4AH0000" "000000V" "8420000" "00E1FHF"
    "GGMPHHU" "00EGGHE" "11DJHHF" "00EHVGE" "698S888" "0FHHF1E" "GGMPHHH" "40C444E" "20622IC" "GGIKOKI" "C44444E"
    "00QLLHH" "00MPHHH" "00EHHHE" "00UHUGG" "00DJF11" "00MPGGG" "00EGE1U" "88S8896" "00HHHJD" "00HHHA4" "00HHLLA"
    "00HA4AH" "00HHF1E" "00V248V" "2448442" "4444444" "8442448" "009LI00";
// clang-format on
static_assert(sizeof kFont == 95 * kRows + 1);

bool is_set(char character, std::size_t column, std::size_t row) {
  const char code = kFont[static_cast<std::size_t>(character - ' ') * kRows + row];
  const int bits = code <= '9' ? code - '0' : code - 'A' + 10;
  return (bits >> (kColumns - 1 - column) & 1) != 0;
}

}  // namespace

void draw_text(Image& image, std::size_t x, std::size_t y, const std::string& text, const Colour& colour,
               std::size_t scale) {
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x80 && byte < 0xc0) continue;  // the rest of a character of UTF-8
    const char character = byte < ' ' || byte > '~' ? '?' : letter;
    for (std::size_t v = 0; v < kRows * scale && y + v < image.height; ++v) {
      for (std::size_t u = 0; u < kColumns * scale && x + u < image.width; ++u) {
        if (is_set(character, u / scale, v / scale)) image.set(x + u, y + v, colour);
      }
    }
    x += kCharacterWidth * scale;
  }
}

}  // namespace torchtap::tools::pictures
