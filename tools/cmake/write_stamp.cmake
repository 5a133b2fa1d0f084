# Writes OUTPUT.h and OUTPUT.cpp with the function NAME(), the digest of FILES (commas between): contents, and names
# relative to FOLDER, so that it is the same wherever the project lies.
cmake_policy(VERSION 3.25)
string(REPLACE "," ";" files "${FILES}")
set(digests "")
foreach(file IN LISTS files)
  file(SHA256 ${file} digest)
  cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${FOLDER})
  string(APPEND digests "${file} ${digest}\n")
endforeach()
string(SHA256 stamp "${digests}")
file(WRITE ${OUTPUT}.h "#pragma once
#include <string>

/// Digest of the sources of this target's kernels, for jit::Code::stamp.
std::string ${NAME}();
")
file(WRITE ${OUTPUT}.cpp "#include \"${NAME}.h\"

std::string ${NAME}() {
  return \"${stamp}\";
}
")
