#pragma once
// Text of files and users made safe for a terminal, for messages that quote it.

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// True if all of the text is valid UTF-8. Example: is_utf8("\xFF") == false.
bool is_utf8(std::string_view text);

/// Escapes what a terminal would act on or show as something else: control characters ("\x1b",
/// "\u009b"; newlines and tabs stay), the marks that reverse text ("\u202e"), line separators,
/// and bytes that are not UTF-8.
std::string printable(std::string_view text);

/// The same on one line ("\n" for a newline), with its middle left out beyond `most` bytes.
/// Example: printable_line("a\nb", 100) == "a\\nb".
std::string printable_line(std::string_view text, size_t most);

}  // namespace tessera
