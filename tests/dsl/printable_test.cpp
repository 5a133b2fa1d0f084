#include "dsl/base/printable.h"

#include "dsl/base/error.h"
#include "tests/support/catch.h"

using namespace tessera;

TEST_CASE("UTF-8 is told from other bytes", "[printable]") {
  for (const char* text : {"", "a\n\x1b", "\xc3\xa4", "\xf0\x9f\x98\x80"}) CHECK(is_utf8(text));
  // A lone lead, a lone continuation, too long a form, a surrogate, beyond U+10FFFF.
  for (const char* text :
       {"a\xFF", "\xc3", "\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    CHECK_FALSE(is_utf8(text));
  }
}

TEST_CASE("text without control characters is printed as it is", "[printable]") {
  for (const char* text :
       {"", "a b", "two\nlines\tand a tab", "\xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\x98\x80"}) {
    CHECK(printable(text) == text);
  }
}

TEST_CASE("what a terminal acts on is printed escaped", "[printable]") {
  CHECK(printable("\x1B[31m\r\x7F") == "\\x1b[31m\\x0d\\x7f");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xC2\x9B") == "\\u009b");                    // CSI as one character
  CHECK(printable("\xE2\x80\xAEtxt.exe") == "\\u202etxt.exe");  // right to left
  CHECK(printable("\xE2\x81\xA6\xD8\x9C\xE2\x80\x8F") == "\\u2066\\u061c\\u200f");
  CHECK(printable("\xE2\x80\xA8\xEF\xBB\xBF") == "\\u2028\\ufeff");
}

TEST_CASE("bytes that are not UTF-8 are printed escaped", "[printable]") {
  CHECK(printable("\x9B\xFF") == "\\x9b\\xff");
  CHECK(printable("\xC3") == "\\xc3");
  CHECK(printable("\xE2\x80") == "\\xe2\\x80");
  CHECK(printable("\xC0\x80") == "\\xc0\\x80");           // an overlong NUL
  CHECK(printable("\xED\xA0\x80") == "\\xed\\xa0\\x80");  // half of a pair
  CHECK(printable("\xF4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(printable("\xC3(") == "\\xc3(");
}

TEST_CASE("a long line loses its middle, never a part of a character", "[printable]") {
  CHECK(printable_line("a\nb", 3) == "a\\nb");
  CHECK(printable_line("0123456789", 10) == "0123456789");
  CHECK(printable_line("0123456789", 4) == "01 ... 6 bytes left out ... 89");
  CHECK(printable_line("a\xC3\xA9zzzz\xC3\xA9z", 4) == "a ... 8 bytes left out ... z");
}

TEST_CASE("messages about arguments keep foreign text on its line", "[printable]") {
  const Error error({.kind = ErrorKind::argument,
                     .op = "op\n",
                     .what = "tensor 'a\n  got       b'",
                     .expected = "c",
                     .got = std::string(5000, 'x')});
  const std::string text = error.what();
  CHECK(text.find("tessera: op\\n: tensor 'a\\n  got       b'\n  expected  c\n  got       xxx") ==
        0);
  CHECK(text.size() < 2200);
  // Logs of a compiler have lines of their own.
  CHECK(std::string(Error({.kind = ErrorKind::compile, .what = "w", .got = "a\nb"}).what()) ==
        "tessera: w\n  got       a\nb");
}
