#pragma once
// Records the prover's claims during lowering, for a judge outside the compiler. Records nothing
// unless the thread has a ProofLog.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dsl/ir/expr.h"

namespace tessera::codegen {

struct Claim {
  enum class Kind : uint8_t {
    less,          // a < b: claimed
    non_negative,  // a >= 0: claimed
    equal,         // a == b: claimed
    divisible,     // divisor divides a: claimed
    kept_guard,    // a is boolean and tested at run time: could it have been proved?
  };
  Kind kind = Kind::less;
  ir::Expr a, b;
  int64_t divisor = 0;
  std::vector<ir::Expr> known;                            // conditions in force
  std::vector<std::pair<const ir::Var*, ir::Expr>> lets;  // values of named integers
};

/// Example: ProofLog log; lower(kernel); judge(log.claims());
class ProofLog {
 public:
  ProofLog();
  ~ProofLog();
  ProofLog(const ProofLog&) = delete;
  ProofLog& operator=(const ProofLog&) = delete;

  /// The innermost ProofLog of this thread, or null.
  static ProofLog* active();

  void add(Claim claim) { claims_.push_back(std::move(claim)); }
  const std::vector<Claim>& claims() const { return claims_; }

 private:
  ProofLog* outer_;
  std::vector<Claim> claims_;
};

}  // namespace tessera::codegen
