"""The wheel that TESSERA_WHEEL names: its names, what it needs, what it exports. Made by tools/wheel, and by cibuildwheel for
more systems than this one. Without a wheel the built package is imported where no library of the build is."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

WHEEL = pathlib.Path(os.environ["TESSERA_WHEEL"]) if "TESSERA_WHEEL" in os.environ else None
of_a_wheel = pytest.mark.skipif(WHEEL is None, reason="TESSERA_WHEEL names no wheel")
NEEDED = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2"}


# Imports the package, and transposes [[1, 2, 3], [4, 5, 6]] by the program in it: no numpy is needed. Prints the version.
USE = """
import json, pathlib, struct, sys, tessera
from tessera.__main__ import main
assert len(tessera.ops()) > 60 and 'tessera' in tessera.doctor()
folder = pathlib.Path(sys.argv[1])
header = json.dumps({'x': {'dtype': 'F32', 'shape': [2, 3], 'data_offsets': [0, 24]}}).encode()
(folder / 'x').write_bytes(struct.pack('<Q', len(header)) + header + struct.pack('<6f', 1, 2, 3, 4, 5, 6))
sys.argv[1:] = ['run', 'transpose', '--device', 'cpu', '--in', str(folder / 'x'), '--out', str(folder / 'y')]
assert main() == 0
data = (folder / 'y').read_bytes()
size = int.from_bytes(data[:8], 'little')
out = json.loads(data[8 : 8 + size])['out']
begin, end = (8 + size + at for at in out['data_offsets'])
assert out['shape'] == [3, 2] and struct.unpack('<6f', data[begin:end]) == (1, 4, 2, 5, 3, 6)
print(tessera.version)
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """The compiled module."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    (found,) = folder.glob("tessera/_core*.so")
    return found


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@of_a_wheel
def test_the_wheel_and_its_module_are_named_alike(core):
    python = re.search(r"-(cp3\d+)-(abi3|cp3\d+)-", WHEEL.name)
    assert python, WHEEL.name
    assert core.name == ("_core.abi3.so" if python[2] == "abi3" else f"_core.cpython-{python[1][2:]}-x86_64-linux-gnu.so")
    assert WHEEL.stat().st_size <= 20 << 20


@of_a_wheel
def test_the_module_exports_its_entry_alone(core):
    exported = output_of("nm", "-D", "--defined-only", str(core)).split()[2::3]
    assert exported == ["PyInit__core"]


@of_a_wheel
def test_the_module_needs_the_system_alone(core):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", str(core))))
    assert needed <= NEEDED, needed - NEEDED


@of_a_wheel
def test_the_stable_abi_is_kept():
    if "-abi3-" not in WHEEL.name:
        pytest.skip("a wheel of one version of Python")
    pytest.importorskip("abi3audit", reason="abi3audit is not installed")
    assert subprocess.run([sys.executable, "-m", "abi3audit", "--strict", str(WHEEL)], timeout=120).returncode == 0


@of_a_wheel
def test_the_wheel_says_on_which_systems_it_runs():
    if shutil.which("auditwheel") is None or "manylinux" not in WHEEL.name:
        pytest.skip("a wheel of this system: tools/wheel and cibuildwheel name those that run on others")
    system = re.search(r"manylinux_\d+_\d+_x86_64", WHEEL.name)
    assert f'"{system[0]}"' in output_of("auditwheel", "show", str(WHEEL))


def libraries_of(file):
    """The files of the libraries that the loader finds for a program or a module, by name."""
    lines = re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", output_of("ldd", str(file)), re.MULTILINE)
    return {name or os.path.basename(path): path for name, path in lines}


def test_it_is_imported_and_runs_an_op_in_a_root_without_the_libraries_of_the_build(tmp_path):
    root, package = tmp_path / "root", tmp_path / "package"
    if WHEEL is not None:
        with zipfile.ZipFile(WHEEL) as wheel:
            wheel.extractall(package)
        allowed = NEEDED
    else:
        import tessera

        shutil.copytree(os.path.dirname(tessera.__file__), package / "tessera")
        allowed = NEEDED | {"libcrypto.so.3"}  # of the system in a build folder, inside of a wheel
    (module,) = package.glob("tessera/_core*.so")
    python, stdlib = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
    if not WHEEL and "libasan" in output_of("ldd", str(module)):
        pytest.skip("a build with sanitizers needs their libraries")
    wanted = {name: path for name, path in libraries_of(module).items() if name in allowed}
    for path in [python, *libraries_of(python).values(), *wanted.values()]:
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path[1:])
    unused = shutil.ignore_patterns("test", "tests", "site-packages", "dist-packages", "idlelib", "tkinter", "ensurepip", "config-*")
    shutil.copytree(stdlib, root / stdlib[1:], ignore=unused, symlinks=True)
    shutil.copytree(package, root / "package")
    (root / "tmp").mkdir()
    enter = ["chroot"] if os.geteuid() == 0 else ["unshare", "-r", "chroot"]
    environment = {"PYTHONPATH": "/package", "PYTHONHOME": sys.base_prefix, "HOME": "/tmp", "PATH": os.environ["PATH"]}
    if subprocess.run([*enter, str(root), python, "-c", ""], env=environment, capture_output=True).returncode != 0:
        pytest.skip("no other root can be entered here")
    ran = subprocess.run(
        [*enter, str(root), python, "-c", USE, "/tmp"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0 and re.search(r"^\d+\.\d+\.\d+\n\Z", ran.stdout, re.M), ran.stdout + ran.stderr


@of_a_wheel
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_wheel_is_imported_and_runs_an_op(version, tmp_path):
    lowest = re.search(r"-cp3(\d+)-(abi3)?", WHEEL.name)
    minor = int(version.split(".")[1])
    if minor != int(lowest[1]) and not (lowest[2] and minor > int(lowest[1])):
        pytest.skip(f"not a wheel of Python {version}")
    python = os.environ.get(f"PYTHON{version}") or shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip(f"Python {version} is not installed")
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(tmp_path)
    environment = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    ran = subprocess.run([python, "-c", USE, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and re.search(r"^\d+\.\d+\.\d+\n\Z", ran.stdout, re.M), ran.stdout + ran.stderr
