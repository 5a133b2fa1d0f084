#pragma once
// Pipelined loops to serial ones: copies from global to shared memory become asynchronous and are
// issued `ahead` iterations ahead, into `stages` = `ahead` + 1 versions of their tile.
//
//   for p in 0 .. ahead:  if p is an iteration: copy(p);  commit
//   for i in begin .. end:
//     wait until the copies of iteration i have landed
//     if i + ahead is an iteration: copy(i + ahead);  commit
//     the rest of the body, on version i % stages
//
// Copies that are first read at different places form groups of their own, each with its wait. A
// group is committed whether it copies anything or not, so the count of pending groups is a
// constant. The wait stands before the issue: one barrier after it covers the data that arrives and
// the version that is about to be overwritten. The first round of the first loop stands as early as
// first_copies.h allows.
//
// In place `ahead` equals `stages`: the copies of all groups follow the last reader of the iteration, into the
// version that it has read.
//
// A loop that goes across the serial loop around (Loop::across) issues its first copies for the next round of that
// one behind itself: crossing.h.

#include <string>
#include <vector>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Returns the kernel without pipelined loops. Adds a note per loop to `notes`: what was pipelined,
/// and what stayed in place and why.
ir::Kernel pipeline_loops(const ir::Kernel& kernel, std::vector<std::string>& notes);

}  // namespace tessera::codegen
