#include "runtime/nvrtc/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/raise.h"

namespace tessera::runtime {

void check_supported(Target target, std::string_view op) {
  if (exists(target)) return;
  raise(ErrorKind::unsupported, op, fmt::format("no kernel can be made for {}", to_string(target)),
        {.expected = "sm_80 or newer; the letter a from sm_90a on, f from sm_100f on",
         .got = to_string(target)});
}

// Always the exact device's target: its cubins are the fastest, and a process compiles for its own
// devices only. Bundles with fewer variants use sm_100f or sm_90, see targets_that_run_on().
Target choose_target(int major, int minor, std::span<const int> supported,
                     std::string_view compiler) {
  const Target target = targets_that_run_on(major, minor).front();
  if (std::find(supported.begin(), supported.end(), target.number()) == supported.end()) {
    raise(ErrorKind::unsupported, "", fmt::format("{} cannot compile for this device", compiler),
          {.expected = fmt::format("one of sm_{}", fmt::join(supported, ", sm_")),
           .got = fmt::format("{} (compute capability {}.{})", to_string(target), major, minor),
           .hint = "install an NVRTC that knows this device, or name one with TESSERA_NVRTC"});
  }
  return target;
}

}  // namespace tessera::runtime
