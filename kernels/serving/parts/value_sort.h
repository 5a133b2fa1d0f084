#pragma once
// Sorts keys in shared memory.

#include <cstdint>

#include "dsl/builder.h"

namespace tessera::kernels::serving {

/// Sorts `list`, u64 [size] in shared memory, in ascending order, with all threads of the block.
/// `size` is a power of two. A bitonic network; not stable.
inline void sort_ascending(dsl::Builder& k, const dsl::Ref& list, int64_t size) {
  using namespace dsl;
  int levels = 0;
  while (int64_t{1} << levels < size) ++levels;
  if (levels == 0) return;
  k.sync();
  k.manual_sync([&] {
    k.rolled(1, levels + 1, [&](Value level) {
      k.rolled(0, level, [&](Value pass) {
        auto distance = k.let("distance", i32(1) << (level - 1 - pass));
        k.parallel({size / 2}, [&](Value pair) {
          auto low = k.let("low", 2 * pair - (pair & (distance - 1)));
          Value a = list(low), b = list(low + distance);
          auto upwards = (low >> level & 1) == 0;
          k.if_((upwards && a > b) || (!upwards && a < b), [&] {
            list(low) = b;
            list(low + distance) = a;
          });
        });
        k.sync();
      });
    });
  });
}

}  // namespace tessera::kernels::serving
