#pragma once
// The two ways down for the wait of a product: parts of place_product_waits.

#include <string>
#include <vector>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// True if the statement waits for products.
inline bool is_product_wait(const Stmt& stmt) {
  const auto* wait = std::get_if<Await>(&stmt.node);
  return wait != nullptr && wait->work == Work::products;
}

/// True if the statement belongs to a product in flight: its fence, an instruction, its commit or its wait.
inline bool is_of_product(const Stmt& stmt) {
  const auto* mma = std::get_if<Mma>(&stmt.node);
  const auto* commit = std::get_if<Commit>(&stmt.node);
  const auto* fence = std::get_if<Fence>(&stmt.node);
  return (mma != nullptr && mma->is_of_group()) || is_product_wait(stmt) ||
         (commit != nullptr && commit->work == Work::products) ||
         (fence != nullptr && fence->of == Fence::Of::registers);
}

/// Over the end of the round: a round awaits the products of the previous round instead of its own, if nothing in the loop
/// touches their sums and no round overwrites operands of the last two rounds. Such a wait leaves as many groups pending as
/// a round has products; final waits stand after the loop. Adds a note per product: delayed, or why not.
void delay_products(Program& program, std::vector<std::string>& notes);

/// Down the statements that follow: the wait for a product, with the arrival that frees its stage if it ends a take, moves to
/// the first statement that needs the sums or writes the left operand's registers. It stays above statements that write memory
/// or wait for other threads. There are two exceptions. Stores to shared memory and barriers of the role are no obstacle inside a
/// take if all operands there are tiles of rings. A wait for the next stages of the ring is none while there are more stages
/// than products in flight. Below an exchange of values between lanes a wait names the registers written last, `Await::above`.
/// Notes what moved.
void sink_products(Program& program, std::vector<std::string>& notes);

}  // namespace tessera::codegen
