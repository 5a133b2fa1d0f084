#pragma once
// Kernels of one's own in the program: link tessera::program, write a line like that below beside a
// kernel, and `list`, `show`, `check`, `bench`, `compile` and `run` know it like a shipped op.

#include <concepts>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dsl/base/source_loc.h"
#include "kernels/op.h"

namespace tessera::tools {

/// The contents of an OwnKernel.
struct Registration {
  std::string name;
  std::function<ir::Kernel()> build;
  std::vector<std::string> cases;
  SourceLoc loc = {};
};

/// A kernel under a name that no other op has, for as long as the process lives; `build` is called
/// when the program starts. Each case is a call in words (see op_of in kernel_op.h): the first is what
/// `show` shows, all are run by `check` and `bench` and compiled by `compile`. A kernel without dims
/// and scalars needs none. At namespace scope, in a source file of the program itself: a linker may
/// leave out what is in a library.
///
/// Example: static const tessera::tools::OwnKernel own("rmsnorm", [] { return rmsnorm(1000); },
///                                                     "rows=4096 eps=1e-6", "rows=1 eps=1e-6");
class OwnKernel {
 public:
  struct Name {
    Name(const char* text_, SourceLoc loc_ = SourceLoc::here()) : text(text_), loc(loc_) {}
    Name(std::string text_, SourceLoc loc_ = SourceLoc::here())
        : text(std::move(text_)), loc(loc_) {}
    std::string text;
    SourceLoc loc;
  };

  template <std::convertible_to<std::string>... Cases>
  OwnKernel(Name name, std::function<ir::Kernel()> build, const Cases&... cases) {
    add({std::move(name.text), std::move(build), {std::string(cases)...}, name.loc});
  }

 private:
  static void add(Registration own);
};

/// The shipped ops and then the kernels of every OwnKernel: what the program knows. Throws Error, at
/// the line of the registration, for a name that is no identifier, is taken or means a family, and
/// the errors of op_of and of the kernel's builder.
const std::vector<kernels::OpInfo>& program_ops();
/// `shipped` and then those.
std::vector<kernels::OpInfo> with_own(std::vector<kernels::OpInfo> shipped,
                                      const std::vector<Registration>& own);

}  // namespace tessera::tools
