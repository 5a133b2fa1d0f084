#pragma once
// Internal to tools/lib/c_export: the text of an exported call.

#include <string_view>

#include "tools/lib/c_export/c_export.h"
#include "tools/lib/c_export/c_model.h"

namespace tessera::tools {

/// The first line of an exported file has these words.
inline constexpr std::string_view kWrittenBy = "written by `tessera compile --format c`";

CFiles c_files(const CCall& call);

}  // namespace tessera::tools
