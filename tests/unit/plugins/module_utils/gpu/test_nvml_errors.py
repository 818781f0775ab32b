# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.inferops.sglang.plugins.module_utils.gpu import nvml_errors
from ansible_collections.inferops.sglang.tests.unit.plugins.module_utils.gpu.fakes import (
    NVMLError,
    NVMLLibraryMismatchError,
)


@pytest.mark.parametrize(
    ("code", "reason", "permanent"),
    [
        (3, "not_supported", True),
        (4, "no_permission", True),
        (7, "insufficient_size", False),
        (9, "driver_not_loaded", True),
        (12, "library_not_found", True),
        (13, "function_not_found", True),
        (15, "lost", True),
        (16, "reset_required", True),
        (17, "operating_system", True),
        (18, "library_mismatch", True),
        (19, "in_use", False),
        (25, "argument_version_mismatch", True),
        (27, "not_ready", False),
        (999, "unknown_error", False),
        (4711, "nvml_error_4711", False),
    ],
)
def test_codes(code, reason, permanent):
    failure = nvml_errors.failure_of(NVMLError(code), "opening it")
    assert (failure.code, failure.permanent) == (reason, permanent)
    assert "opening it" in failure.text
    assert str(code) in failure.message
    assert failure.remedy


@pytest.mark.parametrize("exc", [NVMLLibraryMismatchError("x"), nvml_errors.MissingFunction("nvmlX"), NVMLError(13)])
def test_the_three_faces_of_a_missing_function(exc):
    assert nvml_errors.failure_of(exc, "asking").code == "function_not_found"


def test_anything_else_is_told_as_it_is():
    failure = nvml_errors.failure_of(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "opening it")
    assert failure.code == "unexpected"
    assert "UnicodeDecodeError" in failure.message


def test_real_exceptions_of_the_binding():
    pynvml = pytest.importorskip("pynvml")
    assert nvml_errors.failure_of(pynvml.NVMLError(15), "x").code == "lost"
    assert nvml_errors.failure_of(pynvml.NVMLError(13), "x").code == "function_not_found"


def test_the_bindings_own_word_for_a_function_that_the_library_lacks():
    pynvml = pytest.importorskip("pynvml")
    if not hasattr(pynvml, "NVMLLibraryMismatchError"):
        pytest.skip("this nvidia-ml-py has no such exception yet: it raises NVMLError 13 instead")
    assert nvml_errors.failure_of(pynvml.NVMLLibraryMismatchError("x"), "x").code == "function_not_found"
    assert not isinstance(pynvml.NVMLLibraryMismatchError("x"), pynvml.NVMLError)


def test_a_hang_can_pass():
    assert nvml_errors.hung("reading GPU 3", 10.0).permanent is False
