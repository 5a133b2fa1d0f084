#pragma once
// Makes text of files and users safe for a terminal, for messages that quote it.

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

/// True if all of the text is valid UTF-8. Example: is_utf8("\xFF") == false.
bool is_utf8(std::string_view text);

/// Escapes characters that a terminal acts on or displays misleadingly: control characters ("\x1b",
/// "\u009b"; newlines and tabs stay), bidirectional marks ("\u202e"), line separators, and bytes
/// that are not UTF-8.
std::string printable(std::string_view text);

/// Does the same on one line ("\n" for a newline) and cuts the middle beyond `most` bytes. Example:
/// printable_line("a\nb", 100) == "a\\nb".
std::string printable_line(std::string_view text, size_t most);

}  // namespace tessera
