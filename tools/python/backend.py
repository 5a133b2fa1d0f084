"""Builds wheels as scikit-build-core does. A source archive of this folder would lack the C++ sources, so there is none."""

from scikit_build_core.build import (
    build_editable,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_sdist(sdist_directory, config_settings=None):
    """Refuses: the sources are those of the whole repository."""
    raise SystemExit(
        "tessera-kernels has no source archive, its sources are the whole repository: build a wheel with "
        "`pip wheel ./tools/python`, or install with `pip install ./tools/python` from a checkout, or "
        '`pip install "git+URL#subdirectory=tools/python"`'
    )
