"""The wheel that TESSERA_WHEEL names: its names, what it needs, what it exports. Made by `pip wheel ./tools/python`, and by
cibuildwheel for more systems than this one."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

if "TESSERA_WHEEL" not in os.environ:
    pytest.skip("TESSERA_WHEEL names no wheel", allow_module_level=True)
WHEEL = pathlib.Path(os.environ["TESSERA_WHEEL"])
NEEDED = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2"}


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


def test_the_wheel_and_its_module_are_named_alike(core):
    python = re.search(r"-(cp3\d+)-(abi3|cp3\d+)-", WHEEL.name)
    assert python, WHEEL.name
    assert core.name == ("_core.abi3.so" if python[2] == "abi3" else f"_core.cpython-{python[1][2:]}-x86_64-linux-gnu.so")
    assert WHEEL.stat().st_size <= 20 << 20


def test_the_module_exports_its_entry_alone(core):
    exported = output_of("nm", "-D", "--defined-only", str(core)).split()[2::3]
    assert exported == ["PyInit__core"]


def test_the_module_needs_the_system_alone(core):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-d", str(core))))
    assert needed <= NEEDED, needed - NEEDED


def test_the_stable_abi_is_kept():
    if "-abi3-" not in WHEEL.name:
        pytest.skip("a wheel of one version of Python")
    pytest.importorskip("abi3audit", reason="abi3audit is not installed")
    assert subprocess.run([sys.executable, "-m", "abi3audit", "--strict", str(WHEEL)], timeout=120).returncode == 0


def test_the_wheel_runs_on_old_systems():
    if shutil.which("auditwheel") is None or "manylinux" not in WHEEL.name:
        pytest.skip("a wheel of this system: cibuildwheel makes those that run on others")
    assert '"manylinux_2_28_x86_64"' in output_of("auditwheel", "show", str(WHEEL))


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
    code = "import tessera; assert len(tessera.ops()) > 60; print(tessera.version)"
    ran = subprocess.run([python, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert ran.returncode == 0 and re.fullmatch(r"\d+\.\d+\.\d+\n", ran.stdout), ran.stderr
