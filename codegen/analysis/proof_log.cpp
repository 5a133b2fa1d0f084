#include "codegen/analysis/proof_log.h"

namespace tessera::codegen {
namespace {

thread_local ProofLog* innermost = nullptr;

}  // namespace

ProofLog::ProofLog() : outer_(innermost) {
  innermost = this;
}

ProofLog::~ProofLog() {
  innermost = outer_;
}

ProofLog* ProofLog::active() {
  return innermost;
}

}  // namespace tessera::codegen
