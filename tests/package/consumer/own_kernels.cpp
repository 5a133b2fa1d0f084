// The program `tessera` with a kernel of the consumer's.
#include <tessera/tools/lib/own_kernel.h>

#include "scaled.h"

static const tessera::tools::OwnKernel own("scaled", [] { return scaled({64}); });
