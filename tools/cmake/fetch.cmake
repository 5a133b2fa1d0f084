# tessera_fetch(PACKAGE): downloads the headers of a library that the system does not have, pinned by SHA-256, and sets
# PACKAGE_FOUND. OpenSSL always comes from the system, which keeps it up to date.
include(FetchContent)

set(tessera_archive_fmt https://github.com/fmtlib/fmt/archive/9.1.0.tar.gz
  5dea48d1fcddc3ec571ce2058e13910a0d4a6bab4cc09a809d8b1dd1c88ae6f2)
set(tessera_archive_CLI11 https://github.com/CLIUtils/CLI11/archive/v2.3.2.tar.gz
  aac0ab42108131ac5d3344a9db0fdf25c4db652296641955720a4fbe52334e22)
set(tessera_archive_nlohmann_json https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)

macro(tessera_fetch package)
  if(DEFINED tessera_archive_${package})
    if(TESSERA_INSTALL AND NOT TESSERA_SHARED)
      message(FATAL_ERROR "TESSERA_FETCH_DEPS: ${package} was not found, and whoever links an installed archive needs it"
        " too; install it, or set TESSERA_SHARED=ON")
    endif()
    list(GET tessera_archive_${package} 0 tessera_url)
    list(GET tessera_archive_${package} 1 tessera_hash)
    # A SOURCE_SUBDIR that is not there: the targets of the library's own CMakeLists.txt stay out of ours.
    FetchContent_Declare(tessera_${package} URL ${tessera_url} URL_HASH SHA256=${tessera_hash} SOURCE_SUBDIR none
      DOWNLOAD_EXTRACT_TIMESTAMP OFF)
    FetchContent_MakeAvailable(tessera_${package})
    string(TOLOWER tessera_${package} tessera_content)
    add_library(${package}::${package} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${package}::${package} INTERFACE ${${tessera_content}_SOURCE_DIR}/include)
    if("${package}" STREQUAL fmt)
      target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
    endif()
    set(${package}_FOUND TRUE)
  endif()
endmacro()
