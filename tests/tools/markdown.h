#pragma once
// The parts of the repository's pages that tests look at.

#include <string>
#include <vector>

namespace tessera::tests {

/// A fenced block: ```sh no-run: needs a GPU
struct CodeBlock {
  std::string page;  // "README.md"
  int line = 0;      // of its first line of text
  std::string language;
  std::string words;  // behind the language: "no-run: needs a GPU", "in: kernel"
  std::string text;
};

struct Page {
  std::string path;                  // below the source folder
  std::string text;                  // whole
  std::string prose;                 // without fenced blocks
  std::vector<CodeBlock> blocks;     // in order
  std::vector<std::string> spans;    // `code` in the prose
  std::vector<std::string> links;    // targets of [text](target)
  std::vector<std::string> anchors;  // of its headings, as GitHub makes them
};

/// All pages of the source folder.
const std::vector<Page>& pages();

}  // namespace tessera::tests
