"""Type checkers know the functions: mypy, and pyright where it is installed."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

import tessera

HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(tessera.__file__).parent
GENERATED = ("_ops.py",)  # has its types in _ops.pyi
# Files that are checked where torch is not installed, too.
WITHOUT_TORCH = ("__init__.py", "__main__.py", "_errors.py", "_install.py", "_process.py", "_table.py", "_types.py")
CALLS = HERE / "typed_calls.py"


def wrong_lines(has_torch=True):
    """Without torch its tensors are of any type, and so is what may be one of them."""
    mark = "# wrong" if has_torch else "# wrong: "
    return {number for number, line in enumerate(CALLS.read_text().splitlines(), 1) if mark in line}


@pytest.mark.parametrize("has_torch", [True, False], ids=["with torch", "without torch"])
def test_mypy_accepts_the_package_and_right_calls_and_refuses_wrong_ones(has_torch, tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\n")
    if has_torch:
        pytest.importorskip("torch", reason="torch is not installed")
        names = [path.name for path in PACKAGE.glob("*.py") if path.name not in GENERATED]
    else:
        settings.write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\nignore_missing_imports = True\n")
        names = WITHOUT_TORCH
    files = [str(CALLS), *(str(PACKAGE / name) for name in names)]
    options = ["--strict", "--follow-imports=silent", f"--config-file={settings}", f"--cache-dir={tmp_path}"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={"MYPYPATH": str(PACKAGE.parent), "PATH": ""},
    )
    errors = [line for line in ran.stdout.splitlines() if ": error: " in line]
    assert all(CALLS.name in line for line in errors), ran.stdout
    assert {int(line.split(":")[1]) for line in errors} == wrong_lines(has_torch), ran.stdout + ran.stderr


def test_pyright_accepts_right_calls_and_refuses_wrong_ones(tmp_path):
    if shutil.which("pyright") is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(PACKAGE.parent)], "include": [str(HERE)]}))
    ran = subprocess.run(
        ["pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path), str(CALLS)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if not ran.stdout.startswith("{"):
        pytest.skip("pyright does not run here: it fetches its program from the net")
    found = json.loads(ran.stdout)["generalDiagnostics"]
    errors = {row["range"]["start"]["line"] + 1 for row in found if row["severity"] == "error"}
    assert errors == wrong_lines(), ran.stdout
