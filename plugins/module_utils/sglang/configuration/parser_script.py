# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that runs inside SGLang's own interpreter, see parser_probe.

It is text, because it is not of this process: it must run on that interpreter's Python, in a container
too, with nothing but the standard library and SGLang.
"""

from __future__ import annotations

SCRIPT = r"""
import argparse
import enum
import faulthandler
import hashlib
import importlib.util
import json
import os
import stat
import sys
import traceback


# -- the package


def package_folder():
    # Found without importing it, so that it is known even where the import fails.
    try:
        spec = importlib.util.find_spec("sglang")
    except Exception:
        return ""
    if spec is None or not spec.origin:
        return ""
    return os.path.dirname(os.path.realpath(spec.origin))


def version_of():
    import sglang

    own = str(getattr(sglang, "__version__", ""))
    if own and not own.startswith("0.0.0"):
        return own
    # A source tree that was never built does not know better.
    try:
        from importlib.metadata import version
        return version("sglang")
    except Exception:
        return own


def describe_file(root, target):
    path = os.path.join(root, target)
    found = {"path": path, "sha256": "", "problem": ""}
    real = os.path.realpath(path)
    if os.path.commonpath([root, real]) != root:
        return dict(found, problem="leads out of %s to %s" % (root, real))
    try:
        if not stat.S_ISREG(os.stat(real).st_mode):
            return dict(found, problem="is not a regular file")
        digest = hashlib.sha256()
        with open(real, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        return dict(found, sha256=digest.hexdigest())
    except FileNotFoundError:
        return found
    except OSError as error:
        return dict(found, problem="cannot be read: %s" % error.strerror)


# -- its parser


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


def option_strings(module):
    try:
        parser = argparse.ArgumentParser()
        module.ServerArgs.add_cli_args(parser)
        return sorted(parser._option_string_actions)
    except BaseException:
        return []


def note_complaints(complaints):
    # What argparse objects to, before it prints it among everything else and leaves.
    original = argparse.ArgumentParser.error

    def error(self, message):
        complaints.append(message)
        return original(self, message)

    argparse.ArgumentParser.error = error


def parse(module, argv):
    args = module.prepare_server_args(argv)
    # From 0.5.23 on, constructing the arguments no longer resolves them.
    if hasattr(args, "resolve_once"):
        args.resolve_once()
        fields = args.resolved_dict()
    else:
        fields = vars(args)
    args.check_server_args()
    return plain_fields(dict(fields))


def attempt(answer, argv):
    try:
        import sglang
    except ModuleNotFoundError as error:
        missing = "no_sglang" if error.name == "sglang" else "no_parser"
        return dict(answer, status=missing, message=str(error))
    except Exception as error:
        return dict(answer, status="no_parser", message=repr(error))
    answer["version"] = version_of()
    try:
        import sglang.srt.server_args as module
    except BaseException as error:
        return dict(answer, status="no_parser", message="%s: %s" % (type(error).__name__, error))
    answer["options"] = option_strings(module)
    has_device = any(word == "--device" or word.startswith("--device=") for word in argv)
    if not has_device and not sees_accelerator():
        argv = argv + ["--device", "cuda"]
        answer["assumed_device"] = True
    complaints = []
    note_complaints(complaints)
    try:
        return dict(answer, status="accepted", fields=parse(module, argv))
    except SystemExit as leaving:
        return dict(answer, status="refused", message="".join(complaints[-1:]), exited=str(leaving.code))
    except BaseException as error:
        lines = traceback.format_exception_only(type(error), error)
        return dict(answer, status="refused", message="".join(lines).strip()[-2000:] or repr(error))


# -- the exchange with parser_probe


def write_files(folder, files):
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)


def answer_to(task):
    package = package_folder()
    root = os.path.dirname(package)
    files = {target: describe_file(root, target) for target in task["targets"]} if package else {}
    answer = {"version": "", "assumed_device": False, "package": package, "options": [], "files": files}
    try:
        if task["files"]:
            write_files(task["folder"], task["files"])
    except OSError as error:
        return dict(answer, status="broken", message="cannot write below %s: %s" % (task["folder"], error.strerror))
    return attempt(answer, task["argv"])


def main(task):
    # Standard output is for the answer alone: what is printed from here on goes where errors go, that of
    # libraries and of children too.
    out = os.dup(1)
    os.dup2(2, 1)
    # In a container no signal reaches this process when its time is up.
    faulthandler.dump_traceback_later(task["limit"], exit=True)
    if task["working_directory"]:
        try:
            os.chdir(task["working_directory"])
        except OSError:
            pass
    answer = ("\n%s%s\n" % (task["marker"], json.dumps(answer_to(task)))).encode()
    while answer:
        answer = answer[os.write(out, answer):]
    sys.stdout.flush()
    sys.stderr.flush()
    # SGLang may have started threads that would keep the interpreter alive.
    os._exit(0)
"""
