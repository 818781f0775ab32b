# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that runs inside SGLang's own interpreter, see parser_probe.

It is text, because it is not of this process: it must run on that interpreter's Python, with nothing
but the standard library and SGLang.
"""

from __future__ import annotations

SCRIPT = r"""
import enum
import json
import os
import sys
import traceback


def version_of():
    try:
        from importlib.metadata import version
        return version("sglang")
    except Exception:
        pass
    try:
        import sglang
        return str(getattr(sglang, "__version__", ""))
    except Exception:
        return ""


def sees_accelerator():
    try:
        import torch
    except Exception:
        return False
    for name in ("cuda", "xpu", "npu", "hpu", "musa"):
        try:
            if getattr(torch, name).is_available():
                return True
        except Exception:
            pass
    return False


class NotPlain(Exception):
    pass


def plain(value):
    # Objects are left out: their text may differ from start to start.
    if value is None or isinstance(value, (bool, int)) or type(value) is str:
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, (str, os.PathLike)):
        return str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    raise NotPlain()


def plain_fields(fields):
    found = {}
    for name, value in fields.items():
        try:
            if not name.startswith("_"):
                found[name] = plain(value)
        except NotPlain:
            pass
    return found


def parse(argv):
    from sglang.srt.server_args import prepare_server_args

    args = prepare_server_args(argv)
    # From 0.5.23 on, constructing the arguments no longer resolves them.
    if hasattr(args, "resolve_once"):
        args.resolve_once()
        fields = args.resolved_dict()
    else:
        fields = vars(args)
    args.check_server_args()
    return plain_fields(dict(fields))


def attempt(argv):
    answer = {"version": version_of(), "assumed_device": False}
    try:
        import sglang
    except ModuleNotFoundError as error:
        missing = "no_sglang" if error.name == "sglang" else "no_parser"
        return dict(answer, status=missing, message=str(error))
    except Exception as error:
        return dict(answer, status="no_parser", message=repr(error))
    try:
        import sglang.srt.server_args
    except BaseException as error:
        return dict(answer, status="no_parser", message="%s: %s" % (type(error).__name__, error))
    has_device = any(word == "--device" or word.startswith("--device=") for word in argv)
    if not has_device and not sees_accelerator():
        argv = argv + ["--device", "cuda"]
        answer["assumed_device"] = True
    try:
        return dict(answer, status="accepted", fields=parse(argv))
    except SystemExit:
        return dict(answer, status="refused", exited=True)
    except BaseException as error:
        lines = traceback.format_exception_only(type(error), error)
        return dict(answer, status="refused", message="".join(lines).strip()[-2000:] or repr(error))


def main(argv, fd):
    os.set_inheritable(fd, False)
    answer = json.dumps(attempt(argv)).encode()
    while answer:
        answer = answer[os.write(fd, answer):]
    sys.stdout.flush()
    sys.stderr.flush()
    # SGLang may have started threads that would keep the interpreter alive.
    os._exit(0)
"""
