"""An op that is added to the table has its function, types and traceable form, without a line about it."""

import inspect
import json
import pathlib
import subprocess
import sys

import pytest

import tessera
from tessera import _core

WRITER = pathlib.Path(__file__).parents[2] / "tools/python/write_ops.py"

# A stand-in for the compiled module: its table with one op more, which another op's function stands for.
CORE = '''
import json, sys
sys.path.insert(0, {package!r})
from tessera import _core as real

version = real.version
row = json.loads({row!r})
rows = json.loads(real.table_json())["ops"]

def table_json() -> str:
    return json.dumps({{"ops": [*rows, row]}})

def op_texts(op: str) -> dict:
    return real.op_texts({like!r} if op == row["name"] else op)

def function(op, result=None, text=""):
    return op, result, text
'''


def fake_row():
    """An op with a required and an optional input, an accumulator, two outputs and two parameters."""

    def tensor(name, role, dtypes, optional=False, accumulate=False):
        options = {"optional": optional, "accumulate": accumulate, "list": False}
        return {"name": name, "role": role, **options, "dtypes": dtypes, "shape": ["T", "H"], "layout": "row_major"}

    row = dict(next(row for row in json.loads(_core.table_json())["ops"] if row["name"] == "transpose"))
    row |= {"name": "fake_add", "family": "fake", "purpose": "adds a number to every byte"}
    row["tensors"] = [
        tensor("x", "in", ["u8"]),
        tensor("bias", "in", ["u8"], optional=True),
        tensor("total", "inout", ["i64"], optional=True, accumulate=True),
        tensor("out", "out", ["u8"]),
        tensor("out_sf", "out", ["f32"], optional=True),
    ]
    row["params"] = [
        {"name": "amount", "type": "int", "allowed": "1 .. 9"},
        {"name": "layout", "type": "enum", "allowed": ["rows", "columns"], "default": "rows"},
    ]
    return row


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    pytest.importorskip("nanobind", reason="nanobind, whose generator writes the types, is not installed")
    folder = tmp_path_factory.mktemp("package")
    package = str(pathlib.Path(tessera.__file__).parents[1])
    (folder / "_core.py").write_text(CORE.format(package=package, row=json.dumps(fake_row()), like="transpose"))
    ran = subprocess.run([sys.executable, str(WRITER), str(folder)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return folder


def test_the_function_is_written(written):
    text = (written / "_ops.py").read_text()
    scope = {}
    exec(text.replace("from tessera import _core", f"import sys; sys.path.insert(0, {str(written)!r}); import _core"), scope)
    name, result, doc = scope["fake_add"]
    shown = "fake_add(x, *, bias=None, total=None, amount, layout='rows', out=None, stream=None)"
    assert name == "fake_add" and doc.startswith(shown + "\n--\n\nAdds a number to every byte.")
    assert result._fields == ("total", "out", "out_sf") and {"fake_add", "fake_add_result"} <= set(scope["__all__"])
    assert {op.name for op in tessera.ops()} < set(scope["__all__"])


def test_the_traceable_form_is_written(written):
    scope = {}
    exec((written / "_traceable.py").read_text(), scope)
    names = ["x", "bias", "total", "amount", "layout", "out", "stream", "unknown"]
    assert list(inspect.signature(scope["fake_add"]).parameters) == names


def test_the_types_are_written(written):
    text = (written / "_ops.pyi").read_text()
    assert "class fake_add_result(NamedTuple, Generic[_T]):\n    total: _T\n    out: _T\n    out_sf: Optional[_T]\n" in text
    words = "x: torch.Tensor, *, bias: Optional[torch.Tensor] = ..., total: Optional[torch.Tensor] = ..., amount: int"
    assert f"def fake_add({words}, layout: Literal['rows', 'columns'] = ..., out: " in text
