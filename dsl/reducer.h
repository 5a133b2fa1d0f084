#pragma once
// Reducers, made by Builder::reducer.

#include <memory>

#include "dsl/base/api.h"
#include "dsl/value.h"

namespace tessera::dsl {

/// How threads hold the parts. Narrow: each thread holds the elements that it contributes to,
/// determined by its place in the parallel loop. Wide: each thread holds all elements, so update
/// may take any indices; for few elements only.
enum class ReducerKind : uint8_t { narrow, wide };

/// See ReducerKind.
struct ReducerOptions {
  ReducerKind kind = ReducerKind::narrow;
};

/// An accumulator of the whole block. Each thread keeps its own part until the reducer is finalized.
/// Init, update and finalize replace ordinary reads and writes, so that no value counts twice.
///
///   auto total = k.reducer(ReduceOp::sum, DType::f32, {rows});
///   total.init();                                              // opens
///   k.serial(0, tiles, [&](Value t) {
///     k.copy(x.tile({0, t * columns}, {rows, columns}), tile);
///     k.parallel({rows, columns}, [&](Value r, Value c) { total.update(r, f32(tile(r, c))); });
///   });
///   total.finalize(sums);                                      // closes; sums: fragment of {rows}
///
/// The order of the fold depends only on shapes and block size: each thread folds its contributions
/// in program order from the identity; the parts fold as in reduce_sum; the start value comes last.
///
/// Errors: REDUCER_STATE for a call out of order, for an update outside a parallel loop, and for init and
///         finalize in different loops or branches.
class TESSERA_API Reducer {
 public:
  struct State;
  explicit Reducer(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Opens the reducer. Every result includes `start` exactly once.
  void init(SourceLoc loc = SourceLoc::here()) const;
  void init(const Arg& start, SourceLoc loc = SourceLoc::here()) const;

  /// Contributes to one element, inside a parallel loop, once per iteration.
  void update(const Arg& value, SourceLoc loc = SourceLoc::here()) const;
  void update(const Arg& i, const Arg& value, SourceLoc loc = SourceLoc::here()) const;
  void update(const Arg& i, const Arg& j, const Arg& value,
              SourceLoc loc = SourceLoc::here()) const;
  void update(const Arg& i, const Arg& j, const Arg& k, const Arg& value,
              SourceLoc loc = SourceLoc::here()) const;

  /// Closes the reducer and writes the results to a fragment of its shape and dtype, or to such a part
  /// or view.
  void finalize(const Ref& to, SourceLoc loc = SourceLoc::here()) const;
  /// Closes a reducer of one element; every thread gets the result.
  Value finalize(SourceLoc loc = SourceLoc::here()) const;
  /// Returns the result of finalize() again.
  Value value(SourceLoc loc = SourceLoc::here()) const;

 private:
  void contribute(std::vector<ir::Expr> indices, const Arg& value, SourceLoc loc) const;
  void open(ir::Expr start, SourceLoc loc) const;
  void close(const ir::BufferRef& to, ir::VarRef value, SourceLoc loc) const;

  std::shared_ptr<State> state_;
};

}  // namespace tessera::dsl
