#pragma once
// The fixed C text of an exported file, in parts: errors, checks of tensors, the driver, a launch.

#include <span>
#include <string>
#include <string_view>

namespace tessera::tools {

/// Some static functions or types; the text that has the name needs them. A part calls only parts before it, and all
/// names begin with ts_.
struct CPart {
  std::string_view name, text;
};
std::span<const CPart> c_check_parts();
std::span<const CPart> c_driver_parts();

/// The types and constants that every exported header declares, once per program.
extern const std::string_view kCTypes;

/// The parts that `body` needs, and no others: a compiler warns of a static function without a use. `facts` defines
/// ts_facts, the table of arguments that the checks read.
std::string c_parts_for(std::string_view body, std::string_view facts);

}  // namespace tessera::tools
