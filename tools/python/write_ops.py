"""Writes the functions of all ops, from their table, into the package: `write_ops.py PACKAGE_FOLDER`.

The folder holds the compiled module; `_ops.py` and `_ops.pyi` are written beside it.
"""

import json
import pathlib
import sys


def is_always_there(tensor: dict) -> bool:
    return tensor["role"] != "out" and not tensor["optional"] and not tensor["accumulate"]


def arguments_of(op: dict) -> list[dict]:
    """The tensors of a call in the order of its arguments."""
    taken = [t for t in op["tensors"] if t["role"] != "out"]
    always = [t for t in taken if is_always_there(t)]
    optional = [t for t in taken if not is_always_there(t) and not t["accumulate"]]
    return always + optional + [t for t in taken if t["accumulate"]]


def fields_of(op: dict) -> list[str]:
    """The names of the results."""
    fields = [t["name"] for t in op["tensors"] if t["role"] == "out" or t["accumulate"]]
    return fields + [fields[-1] + "_host"] if op["may_wait"] else fields


def signature_of(op: dict) -> str:
    tensors = arguments_of(op)
    words = [f"{t['name']}=..." for t in tensors if is_always_there(t)] + ["*"]
    words += [f"{t['name']}=None" for t in tensors if not is_always_there(t)]
    words += [f"{p['name']}={p['default']!r}" if "default" in p else f"{p['name']}=..." for p in op["params"]]
    return ", ".join(words + ["out=None", "stream=None", "**unknown"])


HEADER = '''"""Written by write_ops.py from the table of ops: a function for each."""

import collections
import inspect

from tessera import _core, _tracing

'''

FUNCTION = '''
def {name}({signature}):
    {doc}
    if _tracing.is_tracing():
        return _tracing.traced("{name}", ({arguments}, unknown))
    return _{name}({arguments}, unknown)


_{name} = _core.function("{name}")
'''

RESULT = '''
{name}_result = collections.namedtuple("{name}_result", {fields}, module="tessera")
_core.set_result_type("{name}", {name}_result)
'''

FOOTER = '''

def _sign(function):
    """Gives a function the signature that its callers see: `...` stands for no default."""
    seen = inspect.signature(function)
    shown = [
        p.replace(default=p.empty) if p.default is ... else p
        for p in seen.parameters.values()
        if p.kind is not p.VAR_KEYWORD
    ]
    function.__signature__ = seen.replace(parameters=shown)
    function.__module__ = "tessera"


__all__ = {ops!r}
for _name in __all__:
    _sign(globals()[_name])
'''


def write_functions(ops: list[dict]) -> str:
    text = HEADER
    for op in ops:
        names = [t["name"] for t in arguments_of(op)] + [p["name"] for p in op["params"]] + ["out", "stream"]
        text += FUNCTION.format(
            name=op["name"],
            signature=signature_of(op),
            doc=repr(op["purpose"]),
            arguments=", ".join(names),
        )
        fields = fields_of(op)
        if len(fields) > 1:
            text += RESULT.format(name=op["name"], fields=tuple(fields))
    return text + FOOTER.format(ops=[op["name"] for op in ops])


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    import _core  # the compiled module alone: the package needs what is written here

    ops = json.loads(_core.table_json())["ops"]
    for op in ops:
        op["may_wait"] = _core.may_wait(op["name"])
    (folder / "_ops.py").write_text(write_functions(ops))
    (folder / "_ops.pyi").write_text("")


main()
