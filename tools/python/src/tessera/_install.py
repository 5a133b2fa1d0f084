"""Whether the files of the package are its own."""

import os
import warnings


def warn_of_another_project() -> None:
    """Warns if the project that PyPI calls `tessera` is installed in the same folder: this one is `tessera-kernels`, and
    both put their files into `tessera`. Called once, by the import of the package."""
    try:
        names = os.listdir(os.path.dirname(os.path.dirname(__file__)))
    except OSError:
        return
    for name in names:
        if name.startswith("tessera-") and name.endswith(".dist-info"):
            version = name.removeprefix("tessera-").removesuffix(".dist-info")
            warnings.warn(
                f"tessera: another project, 'tessera' {version}, is installed in the same folder, and its files mix with "
                "those of 'tessera-kernels'; uninstall both, then install 'tessera-kernels'",
                RuntimeWarning,
                stacklevel=3,
            )
