// The language alone: records a kernel, and catches by type what the library throws.
#include <tessera/dsl/base/error.h>

#include <cstdio>
#include <string>

#include "library.h"
#include "runtime/log.h"

int main() {
  const std::string text = tessera::ir::to_string(doubled(6));
  bool caught = false;
  try {
    tessera::dsl::Builder k("twice");
    k.dim("rows");
    k.dim("rows");
  } catch (const tessera::Error& error) {
    caught = error.code() == "NAME" && std::string(error.what()).find("rows") != std::string::npos;
  }
  std::printf("%s %s\n", greeting(), caught ? "caught" : "NOT caught");
  return caught && text.find("doubled") != std::string::npos ? 0 : 1;
}
