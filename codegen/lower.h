#pragma once
// Tile IR to thread IR: the pass list.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/thread_ir.h"
#include "dsl/base/target.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Lowers a kernel for a target, sm_90a where none is given. Throws an Error of kind program (with the author's
/// line) for what cannot be lowered. Deterministic: the same kernel gives the same program in any process.
Program lower(const ir::Kernel& kernel, Target target = {});

/// The name of the marks (ir::Print) of waits for a stage of a ring.
inline constexpr const char* kWaitMark = "wait";

/// The program as the GPU runs it: without the executor's checks and without dead code, with loads
/// inlined and with unroll factors and conversion widths chosen. cuda::emit() begins with it.
Program finish(Program program);

/// The passes of lower(), then those of finish(), in their order.
std::vector<std::string_view> pass_names();

/// The tile IR or the thread IR as the pass leaves it: `tessera show OP --stage after:NAME`. Throws an
/// Error of kind argument, code UNKNOWN_PASS, for a name that no pass has.
///
///   text_after(kernel, "insert_barriers")
std::string text_after(const ir::Kernel& kernel, std::string_view pass, Target target = {});

/// Receives the IR after a pass: the number and name of the pass, from 1 on, and the text. First come
/// 0 and "recorded".
using SeePass = std::function<void(int number, std::string_view name, const std::string& text)>;

/// Runs all passes of pass_names() and calls `see` after each. Throws what lower() throws; `see` was
/// called for all earlier passes by then.
void for_each_pass(const ir::Kernel& kernel, const SeePass& see, Target target = {});

/// Whether lower() verifies the IR after every pass (the folder verify). On in debug builds and in tests.
void verify_passes(bool on);

/// Why each layout, width, guard and barrier was chosen: `tessera show OP --stage explain`.
std::string explain(const ir::Kernel& kernel, Target target = {});

/// Every fragment and its layout, drawn: `tessera show OP --stage layout`.
std::string draw_layouts(const ir::Kernel& kernel, Target target = {});

}  // namespace tessera::codegen
