# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for packages that SGLang imports and that reading a command line never uses.

They are kernels, compilers and readers of media: large, or of no use without a GPU.  A `.pth` file of the
interpreters under test imports this at their start.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types

ABSENT = frozenset(
    [
        "IPython",
        "deep_gemm",
        "flashinfer",
        "sgl_kernel",
        "soundfile",
        "torchvision",
        "triton",
        "tvm_ffi",
        "xgrammar",
    ]
)
# What fails with the real packages too where there is no GPU.
NEEDS_GPU = frozenset(["triton.runtime.driver.active"])
# What somebody calls isinstance() with.
CLASSES = frozenset(["triton.compiler.CompiledKernel", "triton.runtime.jit.JITFunction"])


class Anything:
    """Has every attribute, can be called, decorate, be a base class or stand in an annotation."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._name}.{name}"
        if full in NEEDS_GPU:
            raise RuntimeError(f"{full}: no GPU")
        return Anything(full)

    def __call__(self, *arguments: object, **named: object) -> Anything:
        return Anything(f"{self._name}()")

    @staticmethod
    def __get_pydantic_core_schema__(_source: object, _handler: object) -> dict[str, str]:
        return {"type": "any"}

    def __getitem__(self, _key: object) -> Anything:
        return self

    def __or__(self, _other: object) -> Anything:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _bases: tuple[type, ...]) -> tuple[type, ...]:
        return (object,)

    def __repr__(self) -> str:
        return f"<stand-in for {self._name}>"


class AbsentModule(types.ModuleType):
    """A module that has every name."""

    __path__ = ()
    # Older than whatever anybody needs, so that nobody else makes use of it.
    __version__ = "0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        return type(name, (), {}) if full in CLASSES else Anything(full)


class Finder:
    """Comes after all others, so that a package that is there is the one that is used."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(name, Finder, is_package=True)

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> AbsentModule:
        return AbsentModule(spec.name)

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        pass


sys.meta_path.append(Finder)
