"""The errors of Tessera. The text is that of the C++ library, its parts are attributes."""


class Error(Exception):
    """Any error of the library.

    `op`, `argument`, `expected`, `got`, `hint` and `code` are its parts; empty where they say nothing.
    """

    def __init__(
        self,
        message: str = "",
        op: str = "",
        argument: str = "",
        expected: str = "",
        got: str = "",
        hint: str = "",
        code: str = "",
    ) -> None:
        super().__init__(message)
        self.op = op
        self.argument = argument
        self.expected = expected
        self.got = got
        self.hint = hint
        self.code = code

    def __reduce__(self) -> tuple[type["Error"], tuple[str, ...]]:
        parts = (self.op, self.argument, self.expected, self.got, self.hint, self.code)
        return type(self), (str(self), *parts)


class ArgumentError(Error, ValueError):
    """A tensor or an option is not what the op takes."""


class ArgumentTypeError(Error, TypeError):
    """An argument has a dtype or a type that the op does not take, is no tensor, unknown or missing."""


class UnsupportedError(Error, NotImplementedError):
    """The call is valid, but not here: it names the device, or what is not implemented."""


class CaptureError(Error, RuntimeError):
    """The call would have to compile while its stream is captured: prepare it before."""


class CompileError(Error, RuntimeError):
    """The compiler refused a kernel, or there is no compiler."""


class LoadError(Error, RuntimeError):
    """The driver refused a compiled kernel."""


class DriverError(Error, RuntimeError):
    """A call of the CUDA driver failed."""


class TrapError(Error, RuntimeError):
    """The checked executor stopped a kernel."""


class InternalError(Error, RuntimeError):
    """A bug in Tessera."""
