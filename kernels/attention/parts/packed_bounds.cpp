#include "kernels/attention/parts/packed_bounds.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {

void require_bounds(const Call& c) {
  for (const auto& [name, rows] : {std::pair{"cu_q", c["Tq"]}, std::pair{"cu_k", c["Tk"]}}) {
    const TensorView& cu = c.given(name);
    if (!values_are_checked(cu)) continue;
    int64_t before = 0;
    for (int64_t b = 0; b <= c["B"]; ++b) {
      const int64_t most = b == 0 ? 0 : rows, now = integer_at(cu, b);
      c.need(now >= before && now <= most, name, out_of_range(name),
             std::to_string(before) + " .. " + std::to_string(most),
             std::to_string(now) + " at " + to_string(Dims{b}));
      before = now;
    }
  }
}

int64_t bound(int64_t rows, int64_t requests, int64_t b) {
  return rows * b * (b + 1) / std::max<int64_t>(requests * (requests + 1), 1);
}

}  // namespace tessera::kernels::attention
