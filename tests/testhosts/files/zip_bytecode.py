# SPDX-FileCopyrightText: The inferops.sglang authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remember the bytecode of modules that Python imports from a zip file.

Ansible sends each module as a zip file with everything that it imports, and Python keeps no bytecode of such files:
compiling the same sources anew is two thirds of what a task costs a host. A host's Python loads this at its start
(zip_bytecode.pth). What runs is the same; only the name of the zip file in a traceback may be that of an earlier task.
"""

from __future__ import annotations

import _imp
import marshal
import os
import sys
import zipimport

FOLDER = "/var/cache/zip-bytecode"

_compile = zipimport._compile_source
_key = int.from_bytes(b"zip\0", "little")


def _remembered(pathname: str, source: bytes) -> object:
    """The code of a module, compiled now or before."""
    name = "%s/%s-%d-%s" % (FOLDER, sys.implementation.cache_tag, len(source), _imp.source_hash(_key, source).hex())
    try:
        with open(name, "rb") as stream:
            return marshal.loads(stream.read())
    except (OSError, ValueError, EOFError, TypeError):
        pass
    code = _compile(pathname, source)
    try:
        # Whole or not at all: another task may want it at this moment.
        with open("%s.%d" % (name, os.getpid()), "wb") as stream:
            stream.write(marshal.dumps(code))
        os.rename(stream.name, name)
    except OSError:  # not root's task, or a root that is read-only
        pass
    return code


zipimport._compile_source = _remembered
