"""The Python blocks of the pages run, and every call that replaces one of TileKernels works."""

import re
from pathlib import Path

import numpy
import pytest

import tessera
from calls import OPS, Call
from tessera import _core

ROOT = Path(__file__).parents[2]
PAGES = [page for page in sorted(ROOT.rglob("*.md")) if not page.relative_to(ROOT).parts[0].startswith((".", "build"))]


def blocks():
    for page in PAGES:
        for number, (words, text) in enumerate(re.findall(r"^```python([^\n]*)\n(.*?)^```", page.read_text(), re.M | re.S)):
            if "no-run:" not in words and "in: op" not in words:
                yield pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("text", list(blocks()))
def test_a_block_of_a_page_runs(text):
    if re.search(r"^import torch", text, re.M):
        pytest.importorskip("torch")
        pytest.importorskip("tessera.nn")
    exec(text, {})


def test_blocks_that_are_not_run_compile():
    texts = [text for page in PAGES for words, text in re.findall(r"^```python([^\n]*)\n(.*?)^```", page.read_text(), re.M | re.S) if "no-run:" in words]
    assert texts
    for text in texts:
        compile(text, "a block of a page", "exec")


def op_blocks():
    page = "\n".join(path.read_text() for path in sorted((ROOT / "kernels").glob("*/README.md")))
    for op, section in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S):
        yield pytest.param(op, re.findall(r"^```python in: op\n(.*?)^```", section, re.M | re.S), id=op)


def test_every_op_has_a_section():
    assert sorted(param.id for param in op_blocks()) == sorted(OPS)


@pytest.mark.parametrize("op, texts", list(op_blocks()))
def test_the_call_of_an_op_on_its_page_runs(op, texts):
    assert len(texts) == 1
    exec(texts[0], {"tessera": tessera, **Call(op, _core.examples(op)[0]).tensors})
    names = texts[0].partition(" = tessera.")[0].split(", ") if " = tessera." in texts[0] else []
    assert [name for name in names if not name.endswith("_host")] == [t.name for t in OPS[op].results]


def rows():
    page = (ROOT / "tools/python/FROM_TILEKERNELS.md").read_text()
    for theirs, call, results in re.findall(r"^\| `(.+?)` \| `(tessera\..+?)` \| (.+?) \|", page, re.M):
        yield pytest.param(call, results, id=theirs)


@pytest.mark.parametrize("call, results", list(rows()))
def test_the_call_that_replaces_one_of_tilekernels_runs(call, results):
    name = re.match(r"tessera\.(\w+)\(", call)[1]
    if name == "get_num_sms":
        tessera.set_num_sms(7)
        assert eval(call) == 7
        return
    if name == "set_num_sms":
        assert eval(call, {"tessera": tessera, "num_sms": None}) is None
        return
    example = Call(name)
    got = eval(call, {"tessera": tessera, **example.tensors, **example.params})
    fields = re.findall(r"`(\w+)`", results)
    if "in place" in results:
        assert got is None and fields == [t.name for t in OPS[name].tensors if t.role == "inout"]
    elif len(fields) == 1:
        assert isinstance(got, numpy.ndarray) and fields == [t.name for t in OPS[name].results]
    else:
        assert list(got._fields) == fields


OURS = {"mhc_boundary"}  # of its families, but not among its functions


def test_every_op_that_tilekernels_has_is_on_its_page():
    page = (ROOT / "tools/python/FROM_TILEKERNELS.md").read_text()
    theirs = {name for name, op in OPS.items() if op.family not in ("attention", "gemm", "linear", "serving")} - OURS
    assert {name for name in theirs if f"`tessera.{name}(" not in page} == set()
