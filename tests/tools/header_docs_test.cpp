// The view of a header that the generator of pages has.

#include "tools/lib/docs/header_docs.h"

#include "tests/support/catch.h"
#include "tests/support/places.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tools {
namespace {

TEST_CASE("a public name without a comment is found with its line (U49)", "[docs]") {
  const HeaderDocs docs = read_header("a.h", R"(#pragma once
namespace tessera {
class Forward;
/// Two words.
struct Pair {
  int first = 0;
  std::function<void(int)> second;
};
void bare(int a, SourceLoc loc = SourceLoc::here());
int behind();  // a comment is enough
/// A class.
class Open {
 public:
  explicit Open(int size);
  ~Open();
  int size() const { return size_; }
  void grow();

 private:
  void hidden();
  int size_;
};
enum class Word { one };
}  // namespace tessera
)");
  CHECK(docs.undocumented == std::vector<std::string>{"a.h:9: void bare(int a)",
                                                      "a.h:17: void grow()",
                                                      "a.h:23: enum class Word { one }"});
}

TEST_CASE("taking a comment from builder.h away is found (U49)", "[docs]") {
  const std::string text = tests::read_text(test::in_source("dsl/builder.h"));
  CHECK(read_header("builder.h", text).undocumented.empty());
  const std::string comment = "  /// Returns the kernel and ends the recording.";
  size_t begin = text.find(comment);
  REQUIRE(begin != std::string::npos);
  size_t end = begin;
  while (text.compare(end, 5, "  ///") == 0) end = text.find('\n', end) + 1;
  const std::string cut = text.substr(0, begin) + text.substr(end);
  const std::vector<std::string> missing = read_header("builder.h", cut).undocumented;
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].find("ir::Kernel finish()") != std::string::npos);
}

TEST_CASE("a struct of fields is shown as it is written", "[docs]") {
  const HeaderDocs docs = read_header("a.h", R"(/// Options.
struct Options {
  /// Bytes.
  int64_t most = 1;
  bool is_on = false;  // or off
};
/// Reads.
///
///   read({.most = 2});
///
/// Errors:  argument, if
///          not.
/// Example: read({});
int read(Options options);
)");
  CHECK(reference_of(docs) == R"(```
struct Options {
  // Bytes.
  int64_t most = 1;
  bool is_on = false;  // or off
};
```

Options.

```
int read(Options options)
```

Reads.

```
read({.most = 2});
```

Errors: argument, if
not.

```
read({});
```
)");
}

}  // namespace
}  // namespace tessera::tools
