#include "kernels/quant/parts/byte_perm.h"

#include <cstring>

namespace tessera::kernels {

dsl::Value byte_perm(dsl::Builder& k, const dsl::Arg& low, const dsl::Arg& high,
                     const dsl::Arg& selectors) {
  static const dsl::ExternFunction kFunction = [] {
    dsl::ExternFunction f;
    f.name = "tessera_byte_perm";
    // __byte_perm clears the other bits of the selectors first, an instruction for each call.
    f.source =
        "__device__ __forceinline__ unsigned tessera_byte_perm(unsigned low, unsigned high,\n"
        "                                                      unsigned selectors) {\n"
        "  unsigned picked;\n"
        "  asm(\"prmt.b32 %0, %1, %2, %3;\" : \"=r\"(picked) : \"r\"(low), \"r\"(high), "
        "\"r\"(selectors));\n"
        "  return picked;\n"
        "}\n";
    f.result = DType::u32;
    f.params = {DType::u32, DType::u32, DType::u32};
    f.model = [](void* result, const void* const* args) {
      uint32_t words[3];
      for (int i = 0; i < 3; ++i) std::memcpy(&words[i], args[i], sizeof(uint32_t));
      const uint64_t bytes = uint64_t{words[1]} << 32 | words[0];
      uint32_t picked = 0;
      for (int i = 0; i < 4; ++i) {
        const uint32_t selector = words[2] >> (4 * i) & 7;
        picked |= static_cast<uint32_t>(bytes >> (8 * selector) & 255) << (8 * i);
      }
      std::memcpy(result, &picked, sizeof picked);
    };
    return f;
  }();
  return k.call(kFunction, {low, high, selectors});
}

}  // namespace tessera::kernels
