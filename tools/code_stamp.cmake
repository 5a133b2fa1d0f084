# Writes OUTPUT, a C++ file with the digest of all sources in ROOMS (folders of ROOT, with commas between), names and
# contents, and an ELF note with VERSION and the digest, by which runtime/build_info.cpp finds every Tessera of a process.
set(digests "")
string(REPLACE "," ";" ROOMS ${ROOMS})
foreach(room ${ROOMS})
  file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/${room}/*.h ${ROOT}/${room}/*.cpp)
  if(NOT sources)
    message(FATAL_ERROR "no sources in ${ROOT}/${room}")
  endif()
  list(SORT sources)
  foreach(source ${sources})
    file(SHA256 ${ROOT}/${source} digest)
    string(APPEND digests "${source} ${digest}\n")
  endforeach()
endforeach()
string(SHA256 stamp "${digests}")
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [=[
#include "runtime/code_stamp.h"

asm(R"(.pushsection .note.tessera,"a",@note
.balign 4
.long 8, 2f - 1f, 1
.asciz "Tessera"
1: .asciz "@VERSION@ @stamp@"
2: .balign 4
.popsection)");

namespace tessera::runtime {

const char* code_stamp() {
  return "@stamp@";
}

}  // namespace tessera::runtime
]=])
