#pragma once
// A cache on the device of rows on the host, by definition.

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Locations of wanted tokens, with the state and the cache after the call: an ordered walk over the slots
/// of each request. Values out of range count as absent: tokens, slots, rows; a request without a row of
/// the state tables, or with that of an earlier one, gets -1.
test::HostTensors hisparse_swap_in(const test::HostTensors& tensors, bool save_misses);

/// The cache after the rows of the lists are copied.
test::HostTensors hisparse_replay(const test::HostTensors& tensors);

/// The host's rows after the newest row of each request is copied.
test::HostTensors hisparse_backup(const test::HostTensors& tensors);

/// The op of that name; null for another.
Runner hisparse_runner(const std::string& op);

}  // namespace tessera::reference
