#pragma once
// Slots of a pool of states: the slot that a request reads, and those that it writes.

#include <string>

#include "dsl/builder.h"
#include "kernels/signature/case.h"

namespace tessera::kernels::linear {

/// The needs of a call with `pool`, `read_slots` and `write_slots`: each slot is -1 or one of the pool; none is written
/// twice, nor written by one request and read by another. A request without a slot to read writes none if
/// `skips_padding`. Errors: argument.
void require_slots(const Call& c, bool skips_padding);

/// The same of a call with n tokens of each request. `write_slots` is [B], or [B, n]. Errors: argument.
void require_slots_of_tokens(const Call& c);

/// In cases: a request reads a slot that it writes, or none of those that others write.
int64_t slot_to_read(const Case& c, int64_t request);
int64_t slot_to_write(const Case& c, int64_t element);
/// In cases: each request reads and writes a slot of its own, the last of the pool first.
int64_t slot_from_end(const Case& c, int64_t request);

/// The slot in `given`, -1 where it is none of `slots`; the call reports one below -1 or beyond.
dsl::Value slot_of(dsl::Builder& k, const dsl::Value& given, const dsl::Value& slots,
                   const std::string& argument);

}  // namespace tessera::kernels::linear
