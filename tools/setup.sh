# Sourced by tools/test, tools/quickstart and .ci/run: installs what a fresh Debian 12 or Ubuntu 24.04 lacks, and builds.
# Everything outside of apt packages stays inside the repository: build* and .deps.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The packages of the program, and those of the tests on top; names of apt.
program_packages=(cmake ninja-build g++ ccache libfmt-dev nlohmann-json3-dev libcli11-dev libssl-dev)
test_packages=(catch2 libz3-dev pkg-config python3 python3-dev python3-venv)
python_modules=(nanobind numpy ml_dtypes pytest mypy)  # torch is too large: with another Python, tests/python/run
nvrtc_wheel='nvidia-cuda-nvrtc==13.0.*'

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "packages are missing and this is neither root nor a machine with sudo; install: ${missing[*]}"
  fi
}

# install_packages NAME...: those of the apt packages that are not installed.
install_packages() {
  missing=()
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == 'install ok installed' ]] ||
      missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || fail "no apt-get here; install by hand: ${missing[*]}"
  say "installing ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# The places where the runtime looks, in short.
has_nvrtc() {
  [ -n "${TESSERA_NVRTC:-}" ] && return 0
  local folder
  for folder in "$root/.deps/nvidia/cu13/lib" "${CUDA_HOME:-/nonexistent}"/{lib64,targets/x86_64-linux/lib} \
    "${CUDA_PATH:-/nonexistent}"/{lib64,targets/x86_64-linux/lib} /usr/local/cuda/{lib64,targets/x86_64-linux/lib}; do
    compgen -G "$folder/libnvrtc.so.1[23]" >/dev/null && return 0
  done
  has_library libnvrtc.so.13 || has_library libnvrtc.so.12
}

# has_library NAME: the loader knows it. No pipe: grep -q would break it, and pipefail call that a no.
has_library() {
  local known
  known=$(/sbin/ldconfig -p)
  [[ $known == *"$1 "* ]]
}

# NVRTC of an installed toolkit, else the wheel into .deps. Without it all runs on the CPU executor only.
install_nvrtc() {
  has_nvrtc && return 0
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  say "installing NVRTC into .deps (no CUDA toolkit found): 218 MB unpacked"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --target "$root/.deps" "$nvrtc_wheel" ||
    printf 'warning: NVRTC could not be installed; nothing can be compiled for a GPU here\n' >&2
}

# Makes a Python in .deps that can build and test the Python package, and sets `python_options` for CMake. Without the
# package index there is none: the package is not built, and a skipped test says why.
make_python() {
  python_options=()
  local python=$root/.deps/python/bin/python3
  if ! "$python" -c 'import nanobind, numpy, ml_dtypes, pytest, mypy' 2>/dev/null; then
    say "installing ${python_modules[*]} into .deps/python"
    if ! { python3 -m venv "$root/.deps/python" &&
      "$python" -m pip install --quiet --disable-pip-version-check "${python_modules[@]}"; }; then
      rm -rf "$root/.deps/python"
      local why='the modules of Python for its package could not be installed from the package index'
      printf 'warning: %s: it is neither built nor tested\n' "$why" >&2
      python_options=(-DTESSERA_BUILD_PYTHON=OFF "-DTESSERA_WHY_NO_PYTHON=$why")
      return 0
    fi
  fi
  python_options=(-DTESSERA_BUILD_PYTHON=ON -DTESSERA_WHY_NO_PYTHON= "-DPython_EXECUTABLE=$python")
}

has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null && has_library libcuda.so.1; }

# build_in FOLDER [TARGET...] -- [CMAKE OPTION...]
build_in() {
  local folder=$1 targets=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    targets+=("$1")
    shift
  done
  shift
  mkdir -p "$folder"
  cmake -S "$root" -B "$folder" -G Ninja "$@" >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log" && return 1; }
  if [ -t 1 ]; then
    ninja -C "$folder" "${targets[@]}"
  else
    ninja -C "$folder" "${targets[@]}" 2>&1 | a_line_a_minute
    return "${PIPESTATUS[0]}"
  fi
}

# Passes one of Ninja's lines "[120/505] ..." a minute, for a log; all other lines pass.
a_line_a_minute() {
  local line last=$SECONDS
  while IFS= read -r line; do
    if [[ $line != \[*/*\]* ]]; then
      printf '%s\n' "$line"
    elif ((SECONDS - last >= 60)); then
      last=$SECONDS
      printf '%s\n' "${line:0:100}"
    fi
  done
}
