"""The types of arguments, for type checkers."""

from typing import Any, Protocol, Union


class Tensor(Protocol):
    """A tensor of torch, numpy or another library that speaks DLPack."""

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...


class _DtypeObject(Protocol):
    @property
    def itemsize(self) -> int: ...


#: A dtype of torch or numpy, or a class of numpy or ml_dtypes, in place of a word such as "e4m3".
Dtype = Union[type[Any], _DtypeObject]


class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...


class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...


class _StreamWithPointer(Protocol):
    @property
    def ptr(self) -> int: ...


#: The current stream of the tensors' library for their device (None), an address, or an object of a library.
Stream = Union[None, int, _CudaStream, _TorchStream, _StreamWithPointer]
